package redact_test

import (
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/redact"
)

func TestThreat27_Output(t *testing.T) {
	t.Parallel()
	output, hash := redact.ForOutput(), strings.Repeat("0123456789abcdef", 4)
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
		"basic":             {"authorization: Basic bWU6cHc=", "authorization: Basic [redacted]"},
		"header in JSON":    {`{\"Authorization\": \"Bearer abc\"}`, `{\"Authorization\": \"Bearer [redacted]\"}`},
		"uploaded key":      {"[upload-certs] Using certificate key:\n" + hash + "\n", "[upload-certs] Using certificate key:\n[redacted]\n"},
		"key of age":        {"AGE-SECRET-KEY-1QQPZRY9", "[redacted]"},
		"key, cut before":   {"a\n[... 12 bytes left out ...]\nMIIE\n-----END PRIVATE KEY-----\nb", "a\n[... 12 bytes [redacted]\nb"},
		"encoded file":      {"client-certificate " + strings.Repeat("QUJD", 60), "client-certificate [redacted]"},
		"url":               {"https://me:pw@host/x", "https://[redacted]@host/x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _ := output.Text(c.in)
			if got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			if twice, _ := output.Text(got); twice != got {
				t.Errorf("redacting twice changed %q to %q", got, twice)
			}
		})
	}
}

// Redacting twice gives the same result as redacting once, and no secret remains.
func FuzzText(f *testing.F) {
	f.Add("kubeadm join --token abcdef.0123456789abcdef")
	f.Add("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----")
	f.Add("K3S_TOKEN=K10abc::server:x https://user:secret@host")
	f.Add("password: \"a b\" $6$abcdefgh$ijklmnop")
	f.Fuzz(func(t *testing.T, text string) {
		for name, redactor := range map[string]*redact.Redactor{"output": redact.ForOutput(), "objects": redact.ForObjects()} {
			once, _ := redactor.Text(text)
			if twice, _ := redactor.Text(once); twice != once {
				t.Errorf("%s: once  %q\ntwice %q", name, once, twice)
			}
			if more, _ := redactor.Text(text + "\nabcdef.0123456789abcdef"); strings.HasSuffix(more, "\nabcdef.0123456789abcdef") {
				t.Errorf("%s: a token remains", name)
			}
		}
	})
}

// A reader learns how much is missing, and texts of objects keep fingerprints.
func TestCounts(t *testing.T) {
	t.Parallel()
	text := "its key is sha256:" + strings.Repeat("0a", 32)
	if got, count := redact.ForObjects().Text(text); got != text || count != 0 {
		t.Errorf("got %q with %d", got, count)
	}
	if got, count := redact.ForOutput().Text(text + " token=a password=b"); strings.Contains(got, "0a0a") || count != 3 {
		t.Errorf("got %q with %d", got, count)
	}
}

// A value may be in the next line, and a quote may not be closed.
func TestLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("[etcd] Creating static Pod manifest for local etcd in \"/etc/kubernetes/manifests\"\n", 3)
	for in, want := range map[string]string{
		long + "token:\n\n  abc\n" + long:               long + "token:\n\n  [redacted]\n" + long,
		long + "abcdef.0123456789abcdef\n" + long:       long + "[redacted]\n" + long,
		long + "password: \"abc def\n" + long + "\"":    long + "password: [redacted]\n" + long + "\"",
		"--token 'abc\n" + long:                         "--token [redacted]\n" + long,
		long + "https://me:pw@host/x":                   long + "https://[redacted]@host/x",
		"a\n-----BEGIN PRIVATE KEY-----\nMIIE\n" + long: "a\n[redacted]",
	} {
		if got, _ := redact.ForOutput().Text(in); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

// A log of the largest size does not take long.
func BenchmarkText(b *testing.B) {
	text := strings.Repeat("[etcd] Creating static Pod manifest for local etcd in \"/etc/kubernetes/manifests\"\n", 12_000)
	r := redact.ForOutput()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		r.Text(text)
	}
}
