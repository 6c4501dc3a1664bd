// Search runs in a web worker, and browsers start none for a page that was opened from a disk. There, this class takes the worker's
// place: it runs the same script in a hidden frame and passes the messages on.
"use strict";
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = this.onerror = null;
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = data => this.receive(data);
      const script = inside.document.createElement("script");
      script.src = String(url);
      script.onload = () => this.start();
      inside.document.body.appendChild(script);
    }

    start() {
      const waiting = this.waiting;
      this.waiting = null;
      waiting.forEach(data => this.deliver(data));
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.deliver(data);
    }

    deliver(data) {
      const inside = this.frame.contentWindow;
      inside.dispatchEvent(new inside.MessageEvent("message", { data }));
    }

    receive(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }

    terminate() {
      this.frame.remove();
    }
  };
}
