package bootstrapdata_test

import (
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
)

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

// The limit holds for any output.
func FuzzTail(f *testing.F) {
	f.Add("kubeadm join --token abcdef.0123456789abcdef", 1024)
	f.Add("password: \"a b\" $6$abcdefgh$ijklmnop", 64)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = min(max(limit, 0), bootstrapdata.MaxTail)
		if tail := bootstrapdata.Tail(text, limit); len(tail) > limit {
			t.Errorf("got %d bytes, limit %d", len(tail), limit)
		}
	})
}
