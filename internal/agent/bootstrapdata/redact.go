package bootstrapdata

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// MaxTail limits the output of a failing command that leaves the host, in bytes.
const MaxTail = 1024

// Redacted replaces each secret in the result of Redact.
const Redacted = "[redacted]"

type redaction struct {
	form *regexp.Regexp
	with string
}

func redactions() []redaction {
	return []redaction{
		// Private keys, also incomplete ones in output that was cut.
		{regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`), Redacted},
		{regexp.MustCompile(`(?s)\A[A-Za-z0-9+/=\s]*-{5}END [A-Z0-9 ]*PRIVATE KEY-{5}`), Redacted},
		// Values of options that hold secrets, of kubeadm, k3s and RKE2.
		{regexp.MustCompile(`(?i)(--(?:[a-z-]*token|discovery-token-ca-cert-hash|certificate-key|[a-z-]*password|[a-z-]*secret)["']?(?:\s*,\s*|[= ]+))((?:"[^"]*"|'[^']*'|[^\s"',])+)`), "${1}" + Redacted},
		// The same as settings: K3S_TOKEN=x, token: x, "password": "x".
		{regexp.MustCompile(`(?i)([a-z0-9_-]*(?:token|password|passwd|secret|certificate-?key|client-key-data|tls-?bootstrap-?token)["']?\s*[:=]\s*)((?:"[^"\n]*"|'[^'\n]*'|[^\s"',])+)`), "${1}" + Redacted},
		{regexp.MustCompile(`(?i)(bearer\s+)[A-Za-z0-9._~+/=-]+`), "${1}" + Redacted},
		// kubeadm's bootstrap tokens, certificate keys and hashes of CAs.
		{regexp.MustCompile(`[a-z0-9]{6}\.[a-z0-9]{16}\b`), Redacted},
		{regexp.MustCompile(`\b(?:sha256:)?[0-9a-fA-F]{64}\b`), Redacted},
		// Tokens of k3s and RKE2, JSON web tokens, password hashes, URLs with
		// credentials.
		{regexp.MustCompile(`\bK10[0-9a-f]{32,}(?:::[^\s"']+)?`), Redacted},
		{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`), Redacted},
		{regexp.MustCompile(`\$(?:1|2[aby]|5|6|7|y|gy)\$[A-Za-z0-9./$=,]{8,}`), Redacted},
		{regexp.MustCompile(`(://)[^/\s:@]+:[^/\s@]+@`), "${1}" + Redacted + "@"},
	}
}

// Redact removes secrets that bootstrap commands may print: bootstrap
// tokens, certificate keys, hashes of CAs, private keys, passwords, and the
// values of options and settings that hold them. Redacting
// twice gives the same result as redacting once. When in doubt it removes the text.
func Redact(text string) string {
	rules := redactions()
	for range maxPasses {
		before := text
		for _, r := range rules {
			text = r.form.ReplaceAllString(text, r.with)
		}
		if text == before {
			break
		}
	}
	return text
}

// maxPasses limits how often the rules are applied. The result of one rule may
// match an earlier rule.
const maxPasses = 8

// Tail returns the last lines of output, redacted, in at most limit bytes. The
// whole output is redacted before it is cut, so that no part of a secret remains.
func Tail(output string, limit int) string {
	text := strings.TrimRight(Redact(strings.ToValidUTF8(output, "?")), " \t\r\n")
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
