// Entities as elements, and what is selected in a text. Text goes in by textContent alone, and labels by attributes.
import { toPoint } from "./offsets.js";

const SIGNS = { open: "", accepted: " ✓", rejected: " ✗" };

/** The thickness of an underline: 1 to 5, by confidence. */
export function weight(score) {
  return Math.min(5, Math.max(1, 1 + Math.floor(score * 5)));
}

/** Make the nodes of a part of a text: pieces of text, and marks, of which the shortest of nested entities counts. */
export function makeMarks(review, { start, end }, entities, chosen, look) {
  const within = (at) => Math.min(end, Math.max(start, at));
  const borders = [...new Set([start, end, ...entities.flatMap((each) => [within(each.start), within(each.end)])])].sort((a, b) => a - b);
  const owners = new Map();
  for (const entity of [...entities].sort((a, b) => b.end - b.start - (a.end - a.start))) {
    for (let at = borders.indexOf(within(entity.start)); borders[at] < Math.min(end, entity.end); at += 1) owners.set(borders[at], entity);
  }
  return borders.slice(0, -1).map((border, at) => {
    const text = review.text.slice(review.units[border], review.units[borders[at + 1]]);
    const entity = owners.get(border);
    return entity === undefined ? document.createTextNode(text) : makeMark(text, entity, borders[at + 1] === entity.end, chosen, look);
  });
}

function makeMark(text, entity, isLast, chosen, look) {
  const element = document.createElement("mark");
  element.textContent = text;
  element.className = `c${look.colour(entity.label) % 6} w${weight(entity.score)} ${entity.state}`;
  if (entity.side !== undefined) element.classList.add(`side-${entity.side}`);
  element.classList.toggle("last", isLast);
  element.classList.toggle("chosen", entity.number !== undefined && entity.number === chosen);
  element.dataset.tag = entity.label + (SIGNS[entity.state] ?? "") + (look.note?.(entity) ?? "");
  if (entity.number !== undefined) element.dataset.entity = entity.number;
  Object.assign(element.dataset, { start: entity.start, end: entity.end });
  element.title = look.describe(entity);
  element.setAttribute("aria-description", look.describe(entity));
  return element;
}

/** The selected span of an element in code points; null if nothing in it is selected. */
export function selectedSpan(element, review) {
  const selection = getSelection();
  if (selection.isCollapsed || selection.rangeCount === 0) return null;
  const range = selection.getRangeAt(0);
  if (!element.contains(range.startContainer) || !element.contains(range.endContainer)) return null;
  const before = document.createRange();
  before.selectNodeContents(element);
  before.setEnd(range.startContainer, range.startOffset);
  const start = before.toString().length;
  const end = start + range.toString().length;
  return { start: toPoint(review.units, start), end: toPoint(review.units, end) };
}

/** Move or extend the selection with the arrow keys, which browsers do in editable text alone. */
export function moveSelection(element, event) {
  const direction = { ArrowRight: "forward", ArrowLeft: "backward" }[event.key];
  if (direction === undefined) return false;
  const selection = getSelection();
  if (!element.contains(selection.anchorNode)) selection.collapse(element, 0);
  if (event.shiftKey) selection.modify("extend", direction, event.ctrlKey ? "word" : "character");
  else {
    if (direction === "forward") selection.collapseToEnd();
    else selection.collapseToStart();
    selection.modify("move", direction, "word");
    if (direction === "forward") selection.modify("move", "backward", "word");
    selection.modify("extend", "forward", "word");
  }
  event.preventDefault();
  return true;
}
