package bootstrapdata_test

import (
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
)

func TestRedact(t *testing.T) {
	t.Parallel()
	hash := strings.Repeat("0123456789abcdef", 4)
	for name, c := range map[string]struct{ in, want string }{
		"nothing":           {"[preflight] Running pre-flight checks\n", "[preflight] Running pre-flight checks\n"},
		"bootstrap token":   {"using abcdef.0123456789abcdef now", "using [redacted] now"},
		"join line":         {"kubeadm join 10.0.0.1:6443 --token abcdef.0123456789abcdef \\\n\t--discovery-token-ca-cert-hash sha256:" + hash, "kubeadm join 10.0.0.1:6443 --token [redacted] \\\n\t--discovery-token-ca-cert-hash [redacted]"},
		"equals":            {"--token=abc --certificate-key=" + hash + " --v=5", "--token=[redacted] --certificate-key=[redacted] --v=5"},
		"list form":         {"'--token', 'very secret'", "'--token', [redacted]"},
		"quoted words":      {"'kubeadm' '--token' 'very secret'", "'kubeadm' '--token' [redacted]"},
		"any token value":   {"--token not-the-usual-form", "--token [redacted]"},
		"certificate key":   {"key " + hash + "!", "key [redacted]!"},
		"hash of an image":  {"image@sha256:" + hash, "image@[redacted]"},
		"short hex stays":   {"commit 0123456789abcdef", "commit 0123456789abcdef"},
		"private key":       {"a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----\nb", "a\n[redacted]\nb"},
		"private key, head": {"a\n-----BEGIN PRIVATE KEY-----\nMIIE", "a\n[redacted]"},
		"private key, tail": {"MIIE\nabc=\n-----END EC PRIVATE KEY-----\nb", "[redacted]\nb"},
		"certificate stays": {"-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----", "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----"},
		"k3s setting":       {"K3S_TOKEN=abc K3S_URL=https://a:6443", "K3S_TOKEN=[redacted] K3S_URL=https://a:6443"},
		"k3s token":         {"join with K10" + hash + "::server:abc", "join with [redacted]"},
		"yaml":              {"token: abc\nserver: https://a", "token: [redacted]\nserver: https://a"},
		"json":              {`{"password": "a b", "x": 1}`, `{"password": [redacted], "x": 1}`},
		"glued to more":     {`password: "a b"0 tokenabcdef.0123456789abcdef`, "password: [redacted] token[redacted]"},
		"web token":         {"got eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln", "got [redacted]"},
		"bearer":            {"Authorization: Bearer abc.def", "Authorization: Bearer [redacted]"},
		"password hash":     {"hash $6$salt$abcdefghijkl", "hash [redacted]"},
		"url":               {"https://me:pw@host/x", "https://[redacted]@host/x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := bootstrapdata.Redact(c.in)
			if got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			if twice := bootstrapdata.Redact(got); twice != got {
				t.Errorf("redacting twice changed %q to %q", got, twice)
			}
		})
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a line of output\n", 200) + "the end"
	got := bootstrapdata.Tail(long, bootstrapdata.MaxTail)
	if len(got) > bootstrapdata.MaxTail || !strings.HasSuffix(got, "the end") || !strings.HasPrefix(got, "a line") {
		t.Errorf("got %d bytes: %q", len(got), got)
	}
	// If the limit cuts a token, its second half must not remain.
	text := "abcdef.0123456789abcdef " + strings.Repeat("x ", 506)
	if got := bootstrapdata.Tail(text, bootstrapdata.MaxTail); strings.Contains(got, "89abcdef") {
		t.Errorf("a part of the token remains: %q", got[:30])
	}
	if got := bootstrapdata.Tail(strings.Repeat("ä", 600), 1001); len(got) > 1001 || strings.ContainsRune(got, '\ufffd') {
		t.Errorf("the limit cut a character: %q", got[:4])
	}
}

// Redacting twice gives the same result as redacting once, no secret remains, and Tail
// respects its limit.
func FuzzRedact(f *testing.F) {
	f.Add("kubeadm join --token abcdef.0123456789abcdef", 1024)
	f.Add("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----", 10)
	f.Add("K3S_TOKEN=K10abc::server:x https://user:secret@host", 0)
	f.Add("password: \"a b\" $6$abcdefgh$ijklmnop", 64)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		once := bootstrapdata.Redact(text)
		if twice := bootstrapdata.Redact(once); twice != once {
			t.Errorf("once  %q\ntwice %q", once, twice)
		}
		limit = min(max(limit, 0), bootstrapdata.MaxTail)
		if tail := bootstrapdata.Tail(text, limit); len(tail) > limit {
			t.Errorf("got %d bytes, limit %d", len(tail), limit)
		}
		if strings.HasSuffix(bootstrapdata.Redact(text+"\nabcdef.0123456789abcdef"), "\nabcdef.0123456789abcdef") {
			t.Error("a token remains")
		}
	})
}
