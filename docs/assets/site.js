// What the theme leaves out for those who read with keys or a screen reader: parts that scroll can be reached and have
// a name, and no two landmarks have the same one.
(() => {
  const named = (part, text) => { if (part.getAttribute("aria-label") !== text) part.setAttribute("aria-label", text); };
  function mend() {
    document.querySelectorAll("nav.md-code__nav").forEach((nav, k) => named(nav, `code ${k + 1}`));
    document.querySelectorAll("nav.md-nav[aria-labelledby]").forEach(nav => {
      const title = document.getElementById(nav.getAttribute("aria-labelledby")) ?? nav.querySelector(".md-nav__title");
      if (title) named(nav, `${title.textContent.trim() || "pages"} (${nav.dataset.mdLevel ?? 0})`), nav.removeAttribute("aria-labelledby");
    });
    document.querySelectorAll(".md-content :is(pre, pre > code, .md-typeset__scrollwrap, p:has(img, math))").forEach(part => {
      if (part.scrollWidth > part.clientWidth && !part.hasAttribute("tabindex")) part.tabIndex = 0;
    });
  }
  // the theme adds its own parts after the page has loaded
  new MutationObserver(mend).observe(document.documentElement, { childList: true, subtree: true });
  addEventListener("resize", mend);
  addEventListener("load", mend);
})();
