"""Self-contained HTML reports: no scripts, no network, inline SVG figures. Needs ``postlin[cli]``."""
