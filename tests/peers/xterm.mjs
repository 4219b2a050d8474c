// What xterm.js shows of the bytes it is given, for the test that compares our screen with it: one wish a line,
// {"rows", "cols", "data": base64, "resize": [rows, cols]}; the answer has the members of tests/peers/screen.c.
import { createInterface } from "node:readline";
import headless from "@xterm/headless";

const INDEXED = 1 << 24, RGB = 2 << 24;
const color = (rgb, palette, value) => (rgb ? RGB | value : palette ? INDEXED | value : 0);
const ATTRS = ["isBold", "isDim", "isItalic", "isBlink", "isInverse", "isInvisible", "isStrikethrough", "isOverline"];

function cellOf(cell) {
  let attrs = ATTRS.reduce((bits, name, i) => bits | (cell[name]() ? 1 << i : 0), 0);
  if (cell.isUnderline()) attrs |= cell.getUnderlineStyle() << 8;
  return [cell.getChars(), cell.getWidth(), color(cell.isFgRGB(), cell.isFgPalette(), cell.getFgColor()),
    color(cell.isBgRGB(), cell.isBgPalette(), cell.getBgColor()), attrs];
}

async function show(wish) {
  const term = new headless.Terminal({ rows: wish.rows, cols: wish.cols, scrollback: 2000, allowProposedApi: true });
  await new Promise((resolve) => term.write(Buffer.from(wish.data, "base64"), resolve));
  if (wish.resize) term.resize(wish.resize[1], wish.resize[0]);
  const buffer = term.buffer.active, cells = [];
  for (let y = 0; y < term.rows; y++) {
    const line = buffer.getLine(buffer.baseY + y);
    cells.push(Array.from({ length: term.cols }, (_, x) => cellOf(line.getCell(x))));
  }
  const said = { row: buffer.cursorY, col: buffer.cursorX, visible: !term._core.coreService.isCursorHidden,
    alternate: buffer.type === "alternate", cells };
  term.dispose();
  return said;
}

// It throws on some input, from a timer of its own; then there is nothing to compare with.
process.on("uncaughtException", () => { process.stdout.write('{"failed":true}\n'); process.exit(0); });
for await (const line of createInterface({ input: process.stdin }))
  process.stdout.write(JSON.stringify(await show(JSON.parse(line))) + "\n");
