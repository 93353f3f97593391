package redact

import "strings"

// hints returns what is in each secret whose rule looks for words, in lower case.
func hints() []string {
	return []string{"token", "passw", "secret", "key", "credential", "authoriz", "bearer", "eyj", "ca-cert-hash", "$"}
}

// Lengths of runs of characters that may be secrets by themselves.
const (
	bootstrapToken = 23
	longWord       = 32
	encodedFile    = 200
)

// lines applies rules to the lines that may have secrets, each with the next line that is not
// blank: a value may be there. Most lines of a log have none, and rules take long.
func (r *Redactor) lines(text string) string {
	var out strings.Builder
	begin, isLast := -1, false
	for at := 0; at < len(text); {
		end := at + strings.IndexByte(text[at:], '\n') + 1
		if end == at {
			end = len(text)
		}
		line := text[at:end]
		switch {
		case r.isSuspicious(line):
			if begin < 0 {
				begin = at
			}
			isLast = false
		case begin < 0:
			out.WriteString(line)
		case isLast:
			out.WriteString(apply(r.rules, text[begin:at]))
			out.WriteString(line)
			begin = -1
		default:
			isLast = strings.TrimSpace(line) != ""
		}
		at = end
	}
	if begin >= 0 {
		out.WriteString(apply(r.rules, text[begin:]))
	}
	return out.String()
}

// isSuspicious reports whether a line may have a secret. It has none if this is false, unless it
// continues one of the line before.
func (r *Redactor) isSuspicious(line string) bool {
	lower := strings.ToLower(line)
	for _, hint := range r.hints {
		if strings.Contains(lower, hint) {
			return true
		}
	}
	if strings.Contains(line, "://") && strings.Contains(line, "@") {
		return true
	}
	return hasLongRun(line)
}

// hasLongRun reports whether a line has a word that is as long as a secret.
func hasLongRun(line string) bool {
	var token, word, encoded int
	for i := range len(line) {
		c := line[i]
		isLower, isDigit, isUpper := 'a' <= c && c <= 'z', '0' <= c && c <= '9', 'A' <= c && c <= 'Z'
		token = next(token, isLower || isDigit || c == '.')
		word = next(word, isLower || isDigit || isUpper || c == '_' || c == '-')
		encoded = next(encoded, isLower || isDigit || isUpper || strings.IndexByte("+/=_-", c) >= 0)
		if token >= bootstrapToken || word >= longWord || encoded >= encodedFile {
			return true
		}
	}
	return false
}

// next counts the characters of a run.
func next(length int, belongs bool) int {
	if belongs {
		return length + 1
	}
	return 0
}
