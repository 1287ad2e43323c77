// Relations as arcs above a line, if both entities stand in the same line; the table has all.
const SVG = "http://www.w3.org/2000/svg";

/** Draw arcs between the marks of a block; the picture is hidden from screen readers, which have the table. */
export function drawArcs(block, relations) {
  for (const old of block.querySelectorAll(".arcs, .arc-label")) old.remove();
  const picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("class", "arcs");
  picture.setAttribute("aria-hidden", "true");
  const around = block.getBoundingClientRect();
  for (const relation of relations) {
    const [head, tail] = [relation.head, relation.tail].map((end) => boxOf(block, end));
    if (!head || !tail || Math.abs(head.top - tail.top) > head.height / 2) continue;
    const { path, name } = arc(head, tail, around, relation.relation);
    picture.append(path);
    block.append(name);
  }
  block.append(picture);
}

function boxOf(block, { start, end }) {
  const mark = block.querySelector(`mark[data-start="${start}"][data-end="${end}"]`);
  return mark === null ? null : mark.getClientRects()[0];
}

/** A path, and its label beside it; the label is an attribute, since text in here would count as text of the document. */
function arc(head, tail, around, label) {
  const [from, to] = [head, tail].map(({ left, width }) => left + width / 2 - around.left);
  const base = head.top - around.top + 1;
  const top = base - 5;
  const bend = Math.sign(to - from) * Math.min(8, Math.abs(to - from) / 2);
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", `M${from} ${base} Q${from} ${top} ${from + bend} ${top} H${to - bend} Q${to} ${top} ${to} ${base} m-3 -4 l3 4 l3 -4`);
  const name = document.createElement("i");
  name.className = "arc-label";
  name.dataset.label = label;
  name.style.left = `${(from + to) / 2}px`;
  name.style.top = `${top}px`;
  return { path, name };
}
