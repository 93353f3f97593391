package redact

import (
	"regexp"
	"strings"
)

// Mark stands for a secret that was removed.
const Mark = "[redacted]"

// maxPasses limits how often the rules are applied. The result of one rule may match an earlier
// rule.
const maxPasses = 8

// Redactor removes secrets. It is safe for concurrent use.
type Redactor struct {
	// keys find private keys, which have several lines; rules find everything else.
	keys, rules []rule
	// hints are what is in lines with secrets.
	hints []string
}

// rule is what a secret looks like, and what stands for it.
type rule struct {
	form *regexp.Regexp
	with string
	// isSecret, if it is set, decides about what the form has found.
	isSecret func(found string) bool
}

// ForObjects returns a Redactor for texts in which digests and fingerprints of keys stay, such
// as messages of objects.
func ForObjects() *Redactor { return &Redactor{keys: privateKeys(), rules: common(), hints: hints()} }

// ForOutput returns a Redactor for what programs print. It also removes what looks like a digest:
// kubeadm's certificate keys have the same form.
func ForOutput() *Redactor {
	digest := rule{form: regexp.MustCompile(`\b(?:sha256:)?[0-9a-fA-F]{64}\b`), with: Mark}
	return &Redactor{keys: privateKeys(), rules: append([]rule{digest}, common()...), hints: hints()}
}

// keyMark is in the first and in the last line of each private key.
const keyMark = "PRIVATE KEY"

// privateKeys returns the rules for private keys, also for incomplete ones in output that was cut.
func privateKeys() []rule {
	return []rule{
		{form: regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)`), with: Mark},
		{form: regexp.MustCompile(`(?s)(?:\A|left out \.\.\.\])[A-Za-z0-9+/=\s]*-{5}END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-{5}`), with: Mark},
	}
}

// common returns the rules for secrets of one or two lines.
func common() []rule {
	return []rule{
		{form: regexp.MustCompile(`\bAGE-SECRET-KEY-[0-9A-Z]+`), with: Mark},
		// Values of options that have secrets, of kubeadm, k3s and RKE2.
		{form: regexp.MustCompile(`(?i)(--(?:[a-z-]*token|discovery-token-ca-cert-hash|[a-z-]*key|[a-z-]*password|[a-z-]*secret)["']?(?:\s*,\s*|[= ]+))((?:"[^"\n]*"?|'[^'\n]*'?|[^\s"',;])+)`), with: "${1}" + Mark},
		// The same as settings: K3S_TOKEN=x, token: x, "password": "x", also in a quoted text.
		{form: regexp.MustCompile(`(?i)((?:token|passw(?:or)?d|secret|certificate-?key|[a-z]key|[_-]key|credentials?|key-data|tls-?bootstrap-?token)\\?["']?\s*[:=]\s*)((?:\\?"[^"\n]*"?|'[^'\n]*'?|[^\s"',;\\])+)`), with: "${1}" + Mark},
		{form: regexp.MustCompile(`(?i)(certificate[ _-]?key\W{1,8})[0-9a-f]{64}\b`), with: "${1}" + Mark},
		{form: regexp.MustCompile(`(?i)(authorization\\?["']?\s*[:=]\s*\\?["']?(?:[a-z]+ +)?)[^\s"',;\\]+`), with: "${1}" + Mark},
		{form: regexp.MustCompile(`(?i)(\bbearer\s+)[^\s"',;\\]+`), with: "${1}" + Mark},
		// kubeadm's bootstrap tokens.
		{form: regexp.MustCompile(`[a-z0-9]{6}\.[a-z0-9]{16}\b`), with: Mark},
		// Tokens of k3s and RKE2, JSON web tokens, password hashes, URLs with credentials.
		{form: regexp.MustCompile(`\bK10[0-9a-f]{32,}(?:::[^\s"']+)?`), with: Mark},
		{form: regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?`), with: Mark},
		{form: regexp.MustCompile(`\$(?:1|2[aby]|5|6|7|y|gy)\$[A-Za-z0-9./$=,]{8,}`), with: Mark},
		{form: regexp.MustCompile(`(://)[^/\s:@]+:[^/\s@]+@`), with: "${1}" + Mark + "@"},
		// Encoded files, such as keys in kubeconfigs.
		{form: regexp.MustCompile(`[A-Za-z0-9+/=_-]{200,}`), with: Mark},
		{form: regexp.MustCompile(`[A-Za-z0-9_-]{43,}`), with: Mark, isSecret: isRegistrationToken},
	}
}

// isRegistrationToken reports whether a word may be a registration token. Names have no capital
// letters.
func isRegistrationToken(word string) bool {
	const length = 43 // 32 bytes in base64
	return len(word) == length && strings.ToLower(word) != word
}

// Text returns the text without secrets, and how many it has replaced by Mark. When in doubt it
// removes a word. Redacting twice gives the same result as redacting once.
func (r *Redactor) Text(text string) (string, int) {
	for range maxPasses {
		before := text
		if strings.Contains(text, keyMark) {
			text = apply(r.keys, text)
		}
		text = r.lines(text)
		if text == before {
			break
		}
	}
	return text, strings.Count(text, Mark)
}

func apply(rules []rule, text string) string {
	for _, rule := range rules {
		text = rule.apply(text)
	}
	return text
}

func (r rule) apply(text string) string {
	if r.isSecret == nil {
		return r.form.ReplaceAllString(text, r.with)
	}
	return r.form.ReplaceAllStringFunc(text, func(found string) string {
		if r.isSecret(found) {
			return r.with
		}
		return found
	})
}
