// A browser starts no worker for a page that was opened as a file. Search runs in a hidden frame there.
// The name is what Material's plugin "offline" looks for: without this file it would fetch one from elsewhere.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      const source = new URL(url, location.href).href.replaceAll("&", "&amp;");
      frame.hidden = true;
      frame.srcdoc = `<script src="${source}"></script>`;
      this.inside = new Promise((started) => {
        frame.onload = () => {
          frame.contentWindow.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          started(frame.contentWindow);
        };
      });
      document.body.append(frame);
    }

    postMessage(data) {
      this.inside.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
