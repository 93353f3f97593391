package bootstrapdata

import (
	"strings"
	"unicode/utf8"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/redact"
)

// MaxTail limits the output of a failing command that leaves the host, in bytes.
const MaxTail = 1024

// Tail returns the last lines of output, redacted, in at most limit bytes. The
// whole output is redacted before it is cut, so that no part of a secret remains.
func Tail(output string, limit int) string {
	text := strings.TrimRight(redacted(strings.ToValidUTF8(output, "?")), " \t\r\n")
	if len(text) <= limit {
		return text
	}
	text = text[len(text)-limit:]
	if cut := strings.IndexByte(text, '\n'); cut >= 0 && cut < limit-1 {
		return text[cut+1:]
	}
	for text != "" && !utf8.RuneStart(text[0]) {
		text = text[1:]
	}
	return text
}

// redacted returns a text without secrets.
func redacted(text string) string {
	text, _ = redact.ForOutput().Text(text)
	return text
}
