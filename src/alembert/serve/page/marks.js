// A text with its entities as elements. Text goes in by textContent alone, and labels by attributes, so that the text of
// the element is the text of the document, and a selection in it has its offsets.
import { toPoint } from "./offsets.js";

const SIGNS = { open: "", accepted: " ✓", rejected: " ✗" };

/** The thickness of an underline: 1 to 5, by confidence. */
export function weight(score) {
  return Math.min(5, Math.max(1, 1 + Math.floor(score * 5)));
}

/** Draw a text; `colour` gives a number for a label, `describe` what a screen reader says. */
export function draw(element, review, colour, chosen, describe) {
  const borders = [...new Set([0, review.points.length, ...review.entities.flatMap(({ start, end }) => [start, end])])].sort((a, b) => a - b);
  const sorted = [...review.entities].sort((a, b) => b.end - b.start - (a.end - a.start));
  const inside = new Map(borders.map((border) => [border, null]));
  for (const entity of sorted) {
    for (let at = firstAtLeast(borders, entity.start); borders[at] < entity.end; at += 1) inside.set(borders[at], entity);
  }
  const nodes = borders.slice(0, -1).map((start, at) => {
    const text = review.text.slice(review.units[start], review.units[borders[at + 1]]);
    const entity = inside.get(start);
    return entity === null ? document.createTextNode(text) : mark(text, entity, borders[at + 1] === entity.end, colour, chosen, describe);
  });
  element.replaceChildren(...nodes);
}

function firstAtLeast(borders, point) {
  let low = 0;
  let high = borders.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (borders[middle] < point) low = middle + 1;
    else high = middle;
  }
  return low;
}

function mark(text, entity, isLast, colour, chosen, describe) {
  const element = document.createElement("mark");
  element.textContent = text;
  element.className = `c${colour(entity.label) % 6} w${weight(entity.score)} ${entity.state}`;
  element.classList.toggle("last", isLast);
  element.classList.toggle("chosen", entity.number === chosen);
  element.dataset.tag = entity.label + SIGNS[entity.state];
  element.dataset.entity = entity.number;
  element.title = describe(entity);
  element.setAttribute("aria-description", describe(entity));
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
