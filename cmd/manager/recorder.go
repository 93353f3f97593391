package main

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
)

// maxNote bounds the note of an Event in bytes: the API server refuses more than 1024, and
// a refused Event is lost.
const maxNote = 1000

// recorder shortens notes of Events that are too long. The end of a note is its least
// important part, such as the message of a host, which has up to 1024 bytes.
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

// clip shortens a text that is too long, at the end of a character.
func clip(text string) string {
	if len(text) <= maxNote {
		return text
	}
	const more = "…"
	return strings.ToValidUTF8(text[:maxNote-len(more)], "") + more
}
