package main

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
)

// maxNote bounds an Event's text: the API server refuses more than 1024 bytes, and
// an Event that was refused is lost.
const maxNote = 1000

// recorder shortens Events that are too long. Texts end with what may be cut off,
// such as what a host reports of a failure, in up to 1024 bytes.
type recorder struct {
	events.EventRecorder
}

func newRecorder(mgr ctrl.Manager, name string) events.EventRecorder {
	return recorder{mgr.GetEventRecorder(name)}
}

// Eventf implements events.EventRecorder.
func (r recorder) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	r.EventRecorder.Eventf(regarding, related, eventType, reason, action, "%s", clip(fmt.Sprintf(note, args...)))
}

// clip shortens a text that is too long, between characters.
func clip(text string) string {
	if len(text) <= maxNote {
		return text
	}
	const more = "…"
	return strings.ToValidUTF8(text[:maxNote-len(more)], "") + more
}
