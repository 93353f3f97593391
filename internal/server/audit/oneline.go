package audit

import (
	"strings"
	"unicode"

	"k8s.io/klog/v2"
)

// onOneLine returns the values with all characters replaced that can break a line or
// change how a terminal shows it. Some values are texts of callers, and the default log
// format prints a text with line breaks as several lines: a caller could forge decisions.
func onOneLine(values []any) []any {
	out := make([]any, len(values))
	for i, value := range values {
		switch v := value.(type) {
		case string:
			out[i] = clean(v)
		case klog.ObjectRef:
			out[i] = klog.KRef(clean(v.Namespace), clean(v.Name))
		default:
			out[i] = value
		}
	}
	return out
}

// clean replaces characters that are neither printable nor a plain space.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
