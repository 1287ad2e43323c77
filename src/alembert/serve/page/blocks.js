// A long text in blocks, which are drawn with their marks while they are visible, and are plain text otherwise. The text of
// the element is always the whole text, so that a selection has its offsets, and a search of the browser finds everything.
import { drawArcs } from "./arcs.js";
import { makeMarks } from "./marks.js";
import { REJECTED } from "./review.js";

const SMALLEST = 400;
const LARGEST = 2000;

/** Cut a text after lines, or a long line after a sentence or a word, and never inside of an entity; in code points. */
export function cutBlocks(points, entities) {
  const inside = new Uint8Array(points.length + 1);
  for (const { start, end } of entities) inside.fill(1, start + 1, end);
  const borders = [0];
  let begun = 0;
  for (let at = 1; at < points.length; at += 1) {
    const length = at - begun;
    if (length < SMALLEST || inside[at]) continue;
    const isLine = points[at - 1] === "\n";
    const isSentence = length >= LARGEST && /\s/u.test(points[at - 1]) && /[.!?]/.test(points[at - 2]);
    const isWord = length >= 1.25 * LARGEST && /[\s。！？；，]/u.test(points[at - 1]);
    if (isLine || isSentence || isWord || length >= 2 * LARGEST) borders.push(begun = at);
  }
  return borders.map((start, number) => ({ start, end: borders[number + 1] ?? points.length }));
}

export class TextView {
  /** `look` describes a mark: `colour(label)` gives a number, `describe(entity)` what a screen reader says. */
  constructor(element, look) {
    this.element = element;
    this.look = look;
    this.blocks = [];
    this.observer = new IntersectionObserver((entries) => this.#seen(entries), { root: element, rootMargin: "400px 0px" });
    new ResizeObserver(() => this.blocks.forEach((block) => block.isDrawn && this.#connect(block))).observe(element);
  }

  /** Show a text with entities. */
  show(review, entities, relations = []) {
    this.observer.disconnect();
    Object.assign(this, { review, entities, relations, chosen: null });
    this.blocks = cutBlocks(review.points, entities).map((span) => {
      const element = document.createElement("div");
      element.className = "block";
      const block = { ...span, element, isDrawn: false };
      this.#clear(block);
      return block;
    });
    this.element.replaceChildren(...this.blocks.map(({ element }) => element));
    this.blocks.slice(0, 2).forEach((block) => this.#draw(block));
    this.blocks.forEach(({ element }) => this.observer.observe(element));
  }

  /** Draw visible blocks again, since entities or the chosen one are others now. */
  update(entities, chosen, relations = this.relations) {
    Object.assign(this, { entities, chosen, relations });
    for (const block of this.blocks) if (block.isDrawn) this.#draw(block);
  }

  /** Scroll to a span. */
  reveal({ start, end }) {
    const block = this.blocks.find((each) => each.start <= start && start < each.end);
    if (block === undefined) return;
    if (!block.isDrawn) this.#draw(block);
    const mark = [...block.element.querySelectorAll("mark")].find((each) => Number(each.dataset.start) <= start && end <= Number(each.dataset.end));
    (mark ?? block.element).scrollIntoView({ block: "nearest" });
  }

  #seen(entries) {
    for (const { target, isIntersecting } of entries) {
      const block = this.blocks.find(({ element }) => element === target);
      if (block === undefined || block.isDrawn === isIntersecting) continue;
      if (isIntersecting) this.#draw(block);
      else if (!holdsSelection(target)) this.#clear(block);
    }
  }

  #draw(block) {
    const inside = this.entities.filter(({ start, end }) => start < block.end && end > block.start);
    block.element.replaceChildren(...makeMarks(this.review, block, inside, this.chosen, this.look));
    block.isDrawn = true;
    this.#connect(block);
  }

  #connect(block) {
    const inside = this.relations.filter(({ head, tail, state }) => state !== REJECTED && head.start >= block.start && tail.start >= block.start && head.end <= block.end && tail.end <= block.end);
    if (inside.length > 0) drawArcs(block.element, inside);
  }

  #clear(block) {
    block.element.textContent = this.review.text.slice(this.review.units[block.start], this.review.units[block.end]);
    block.isDrawn = false;
  }
}

function holdsSelection(element) {
  const selection = getSelection();
  return !selection.isCollapsed && selection.containsNode(element, true);
}
