"""SVG as a page wants it: small, without foreign markup, in the ink of the text around it."""

import re
import xml.etree.ElementTree as ET

from postlin.workbench.report.text import plain

#: Drawn by matplotlib for whatever shall have the colour of the surrounding text.
INK = "#0a0b0c"

_SVG = "http://www.w3.org/2000/svg"
_XLINK_HREF = "{http://www.w3.org/1999/xlink}href"
_FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_ROOT_STYLE = f"font-family: {_FONTS}; stroke-linejoin: round; stroke-linecap: butt"


def clean(text: str) -> str:
    """What matplotlib wrote, with the ink of the page and nothing that is not drawn.

    Its style sheet would apply to the whole page and its metadata speak of other hosts, so that
    both go. Text is in the fonts of the page.
    """
    root = _parse(text)
    root.set("style", _ROOT_STYLE)
    for element in root.iter():
        for child in [c for c in element if c.tag in ("metadata", "style")]:
            element.remove(child)
        if "style" in element.attrib and element is not root:
            element.set("style", _page_style(element.attrib["style"]))
        if "d" in element.attrib:
            element.set("d", _shorter(element.attrib["d"]))
        if not (element.tail or "").strip():
            element.tail = None
        if element.tag != "text" and not (element.text or "").strip():
            element.text = None
    _drop_unused_ids(root)
    return _write(root)


def embed(text: str, prefix: str, alt: str) -> str:
    """The drawing as an image with a name, its ids distinct from those of other drawings."""
    root = _parse(text)
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == "id":
                element.set(key, prefix + value)
            elif key == "href" and value.startswith("#"):
                element.set(key, f"#{prefix}{value[1:]}")
            elif "url(#" in value:
                element.set(key, value.replace("url(#", f"url(#{prefix}"))
    root.set("role", "img")
    root.set("aria-label", plain(alt))
    return _write(root)


def standalone(text: str, alt: str) -> str:
    """The drawing as a file of its own: dark ink on white, whatever shows it."""
    root = _parse(embed(text, "", alt))
    root.set("style", f"{root.attrib['style']}; background: #ffffff; color: #1d2024")
    return _write(root) + "\n"


def _parse(text: str) -> ET.Element:
    """The tree without namespaces, which HTML does not need."""
    root = ET.fromstring(text)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        if _XLINK_HREF in element.attrib:
            element.set("href", element.attrib.pop(_XLINK_HREF))
    return root


def _write(root: ET.Element) -> str:
    root.set("xmlns", _SVG)  # for whoever saves the drawing as a file of its own
    return ET.tostring(root, encoding="unicode")


def _page_style(style: str) -> str:
    inked = re.sub(rf"\b(fill|stroke): {INK}", r"\1: currentColor", style)
    return re.sub(r"font-family: [^;]*;? ?", "", inked)


def _shorter(path: str) -> str:
    """The path to a hundredth of a point, on one line."""
    rounded = re.sub(r"-?\d+\.\d{3,}", lambda match: f"{float(match[0]):.2f}", path)
    return " ".join(rounded.split())


def _drop_unused_ids(root: ET.Element) -> None:
    values = [v for e in root.iter() for k, v in e.attrib.items() if k != "id"]
    used = {name for v in values for name in re.findall(r"#([\w.-]+)", v)}
    for element in root.iter():
        if element.get("id") not in used:
            element.attrib.pop("id", None)
