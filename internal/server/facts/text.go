package facts

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Lengths of characters in a JSON string of the API server, in bytes.
const (
	escapedLength = len(`\n`)
	unicodeLength = len(`\u003c`)
)

func texts(in []string, count, length int) []string {
	var out []string
	for _, t := range in {
		if t = bounded(t, length); t != "" && len(out) < count {
			out = append(out, t)
		}
	}
	return out
}

// Text returns a reported text as it is stored: printable UTF-8 that takes at most 256
// bytes in JSON.
func Text(in string) string { return bounded(in, maxText) }

// bounded returns valid, printable UTF-8 that takes at most limit bytes in JSON, where some
// characters take six times their length. Line breaks and tabs stay.
func bounded(in string, limit int) string {
	in = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(in, "\uFFFD"))
	in = strings.TrimSpace(in)
	length := 0
	for i, r := range in {
		if length += encodedLength(r); length > limit {
			return strings.TrimSpace(in[:i])
		}
	}
	return in
}

// encodedLength returns the length of a character in a JSON string that may be embedded in
// HTML, which is how the API server stores it.
func encodedLength(r rune) int {
	switch r {
	case '<', '>', '&', '\u2028', '\u2029':
		return unicodeLength
	case '"', '\\', '\n', '\t':
		return escapedLength
	default:
		return utf8.RuneLen(r)
	}
}
