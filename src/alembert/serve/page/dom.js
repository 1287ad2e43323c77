// Small tools for elements. Text goes in as text alone.

export const $ = (id) => document.getElementById(id);

/** Make an element with properties, data and children; children are elements or text. */
export function make(name, { data = {}, aria = {}, ...properties } = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  Object.assign(element.dataset, data);
  for (const [key, value] of Object.entries(aria)) element.setAttribute(key === "role" ? key : `aria-${key}`, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

export const span = (className, text) => make("span", { className, textContent: text });

/** A list that shows a hundred items at a time, with buttons to the others. */
export class PagedList {
  static size = 100;

  /** `row(item)` makes a list item. */
  constructor(list, row) {
    Object.assign(this, { list, row, items: [], page: 0 });
    this.buttons = ["‹", "›"].map((sign, at) => make("button", { type: "button", textContent: sign, onclick: () => this.#turn(at === 0 ? -1 : 1) }));
    this.place = span("dim", "");
    this.pager = make("div", { className: "row pager", hidden: true }, this.buttons[0], this.place, this.buttons[1]);
    list.after(this.pager);
  }

  /** Show items; the page with the item at a place is shown, if there is such a place. */
  show(items, at = -1) {
    const pages = Math.ceil(items.length / PagedList.size);
    this.items = items;
    this.page = at >= 0 ? Math.floor(at / PagedList.size) : Math.max(0, Math.min(this.page, pages - 1));
    const first = this.page * PagedList.size;
    const shown = items.slice(first, first + PagedList.size);
    this.list.replaceChildren(...shown.map(this.row));
    this.pager.hidden = pages < 2;
    this.place.textContent = `${first + 1}–${first + shown.length} / ${items.length}`;
    this.buttons[0].disabled = this.page === 0;
    this.buttons[1].disabled = this.page >= pages - 1;
  }

  /** Name the buttons in a language. */
  name(earlier, later) {
    [earlier, later].forEach((words, at) => this.buttons[at].setAttribute("aria-label", words));
  }

  #turn(by) {
    this.page += by;
    this.show(this.items);
    this.list.scrollTop = 0;
  }
}

/** Tabs that are walked with the arrow keys; `onOpen` is called with the name of a panel that was opened. */
export class Tabs {
  constructor(list, onOpen) {
    Object.assign(this, { list, onOpen });
    list.addEventListener("click", ({ target }) => target.closest("[role=tab]") && this.open(target.closest("[role=tab]").dataset.tab));
    list.addEventListener("keydown", (event) => this.#walk(event));
  }

  get #shown() {
    return [...this.list.children].filter((tab) => !tab.hidden);
  }

  open(name) {
    this.current = name;
    for (const tab of this.list.children) {
      const isOpen = tab.dataset.tab === name;
      tab.setAttribute("aria-selected", isOpen);
      tab.tabIndex = isOpen ? 0 : -1;
      $(tab.getAttribute("aria-controls")).hidden = !isOpen;
    }
    this.onOpen(name);
  }

  /** Offer a tab or take it away. */
  offer(name, isThere) {
    const tab = [...this.list.children].find((each) => each.dataset.tab === name);
    tab.hidden = !isThere;
    if (!isThere && this.current === name && this.#shown.length > 0) this.open(this.#shown[0].dataset.tab);
  }

  #walk(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by === undefined) return;
    const tabs = this.#shown;
    const next = tabs[(tabs.indexOf(document.activeElement) + by + tabs.length) % tabs.length];
    this.open(next.dataset.tab);
    next.focus();
    event.preventDefault();
  }
}
