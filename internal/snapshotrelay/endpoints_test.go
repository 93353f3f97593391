package snapshotrelay_test

import (
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/snapshotrelay"
)

func TestParseEndpoints(t *testing.T) {
	t.Parallel()
	for text, valid := range map[string]bool{
		"s3.example.com:443": true, "192.0.2.1:9000": true, "[2001:db8::1]:9000": true,
		"s3.example.com": false, "https://s3.example.com": false, ":443": false, "s3.example.com:https": false, "s3.example.com:0": false, "a:70000": false,
	} {
		if _, err := snapshotrelay.ParseEndpoints([]string{text}); (err == nil) != valid {
			t.Errorf("%s: got %v", text, err)
		}
	}
	if endpoints, err := snapshotrelay.ParseEndpoints(nil); err != nil || len(endpoints) > 0 {
		t.Errorf("got %v, %v", endpoints, err)
	}
}

// Only what is named is reached, by name and port.
func TestThreat99_Endpoints(t *testing.T) {
	t.Parallel()
	endpoints := snapshotrelay.Endpoints{"s3.example.com:443", "[2001:db8::1]:9000"}
	for endpoint, want := range map[string]string{
		"https://s3.example.com":          "s3.example.com:443",
		"https://s3.example.com/":         "s3.example.com:443",
		"https://s3.example.com:443":      "s3.example.com:443",
		"https://[2001:db8::1]:9000":      "[2001:db8::1]:9000",
		"https://s3.example.com:22":       "",
		"https://s3.example.com.evil.org": "",
		"https://kubernetes.default.svc":  "",
		"https://169.254.169.254:80":      "",
		"https://:443":                    "",
		"%":                               "",
	} {
		address, err := endpoints.Check(endpoint)
		if address != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v", endpoint, address, err)
		}
	}
	_, err := snapshotrelay.Endpoints{}.Check("https://s3.example.com")
	if err == nil || !strings.Contains(err.Error(), "--snapshot-relay-endpoints") {
		t.Errorf("got %v", err)
	}
}
