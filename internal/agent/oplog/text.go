package oplog

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// text returns the whole log.
func (r record) text(kind protocol.OperationType) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", kind, r.ID)
	if r.MachineName != "" {
		fmt.Fprintf(&b, " for Machine %s of Cluster %s", r.MachineName, r.ClusterName)
	}
	fmt.Fprintf(&b, ": %s\n\n", r.State)
	for i, line := range r.Lines {
		if i == keptFirst && r.Lost > 0 {
			fmt.Fprintf(&b, "[... %d lines left out ...]\n", r.Lost)
		}
		b.WriteString(line + "\n")
	}
	b.WriteString(r.Output)
	return b.String()
}

// output joins what programs printed, without secrets. It is cut before secrets are looked for,
// because that takes time, and once more afterwards.
func (s *Store) output(printed []operation.Output) (string, int64) {
	var b strings.Builder
	for _, one := range printed {
		fmt.Fprintf(&b, "\n== %s ==\n%s\n", one.Name, strings.TrimRight(clean(string(one.Text)), "\n"))
	}
	text, first := shorten(b.String(), protocol.MaxLogBytes)
	text, _ = s.secret.Text(text)
	text, second := shorten(text, protocol.MaxLogBytes)
	return text, first + second
}

// clean returns a text without what a terminal would take for a command.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\r', !unicode.IsPrint(r):
			return -1
		default:
			return r
		}
	}, strings.ToValidUTF8(text, "?"))
}

// room is what the note about the cut may need, in bytes.
const room = 64

// shorten cuts the middle of a text that has more than limit bytes, at ends of lines if there are
// any nearby, and returns how much is gone. A quarter of the rest is the beginning: the end says
// more.
func shorten(text string, limit int) (string, int64) {
	if len(text) <= limit {
		return text, 0
	}
	keep := limit - room
	head, tail := text[:keep/4], text[len(text)-(keep-keep/4):]
	if end := strings.LastIndexByte(head, '\n'); end > len(head)/2 {
		head = head[:end]
	}
	if begin := strings.IndexByte(tail, '\n'); begin >= 0 && begin < len(tail)/2 {
		tail = tail[begin+1:]
	}
	head, tail = strings.ToValidUTF8(head, ""), strings.ToValidUTF8(tail, "")
	gone := len(text) - len(head) - len(tail)
	return fmt.Sprintf("%s\n[... %d bytes left out ...]\n%s", head, gone, tail), int64(gone)
}
