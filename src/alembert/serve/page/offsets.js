// Offsets: the service counts Unicode code points, JavaScript counts UTF-16 units, of which an emoji has two.

/** Return the UTF-16 offset of each code point of a text, and its length at the end. */
export function unitOffsets(text) {
  const offsets = [];
  for (let unit = 0; unit < text.length; unit += text.codePointAt(unit) > 0xffff ? 2 : 1) offsets.push(unit);
  offsets.push(text.length);
  return offsets;
}

/** Return the code point that a UTF-16 offset is in; the middle of a pair counts as its beginning. */
export function toPoint(offsets, unit) {
  let low = 0;
  let high = offsets.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (offsets[middle] <= unit) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** Return a span of code points without white space at its ends, or null if nothing is left. */
export function trimSpan(points, start, end) {
  while (start < end && /\s/u.test(points[start])) start += 1;
  while (end > start && /\s/u.test(points[end - 1])) end -= 1;
  return start < end ? { start, end } : null;
}
