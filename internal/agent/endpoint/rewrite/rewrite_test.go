package rewrite_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/rewrite"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func rules(tb testing.TB, host string, former ...string) rewrite.Rules {
	tb.Helper()
	r, err := rewrite.New(protocol.Endpoint{Host: host, Port: 6443, Former: former})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// Only the server changes; every other byte stays.
func TestKubeconfig(t *testing.T) {
	t.Parallel()
	ten := []string{"10.0.0.1:6443"}
	for name, test := range map[string]struct {
		host   string
		former []string
		text   string
		want   string // blank: unchanged
	}{
		"plain": {
			"10.0.0.2", ten,
			"apiVersion: v1\n# ours\nclusters:\n- cluster:\n    server: https://10.0.0.1:6443 # the first\n  name: a\nusers: []\n",
			"apiVersion: v1\n# ours\nclusters:\n- cluster:\n    server: https://10.0.0.2:6443 # the first\n  name: a\nusers: []\n",
		},
		"several clusters, some of other servers": {
			"10.0.0.2", ten,
			"clusters:\n- cluster: {server: https://10.0.0.1:6443}\n- cluster: {server: https://192.0.2.1:6443}\n- cluster: {server: 'https://10.0.0.1:6443'}\n",
			"clusters:\n- cluster: {server: https://10.0.0.2:6443}\n- cluster: {server: https://192.0.2.1:6443}\n- cluster: {server: 'https://10.0.0.2:6443'}\n",
		},
		"two on one line": {
			"10.0.0.20", ten,
			`{"clusters":[{"cluster":{"server":"https://10.0.0.1:6443"}},{"cluster":{"server":"https://10.0.0.1:6443/x"}}]}`,
			`{"clusters":[{"cluster":{"server":"https://10.0.0.20:6443"}},{"cluster":{"server":"https://10.0.0.20:6443/x"}}]}`,
		},
		"other characters and line ends": {
			"10.0.0.2", ten,
			"clusters:\r\n- {name: \"Zürich €\", cluster: {server: \"https://10.0.0.1:6443\"}}\r\n",
			"clusters:\r\n- {name: \"Zürich €\", cluster: {server: \"https://10.0.0.2:6443\"}}\r\n",
		},
		"another port is another server":  {"10.0.0.2", ten, "clusters: [{cluster: {server: 'https://10.0.0.1:8443'}}]", ""},
		"an address with the same prefix": {"10.0.0.2", ten, "clusters: [{cluster: {server: 'https://10.0.0.11:6443'}}]", ""},
		"no HTTPS":                        {"10.0.0.2", ten, "clusters: [{cluster: {server: 'http://10.0.0.1:6443'}}]", ""},
		"elsewhere":                       {"10.0.0.2", ten, "clusters: [{cluster: {server: 'https://x', proxy-url: 'https://10.0.0.1:6443'}}]\nserver: https://10.0.0.1:6443\n", ""},
		"no port": {
			"10.0.0.2", []string{"api.example.com:443"},
			"clusters: [{cluster: {server: 'https://API.example.com.'}}]", "clusters: [{cluster: {server: 'https://10.0.0.2:6443'}}]",
		},
		"IPv6 in another form": {
			"2001:db8:0::2", []string{"[2001:db8::1]:6443"},
			"clusters:\n- cluster:\n    server: https://[2001:0DB8:0:0::1]:6443\n", "clusters:\n- cluster:\n    server: \"https://[2001:db8::2]:6443\"\n",
		},
		"to a name": {
			"api.example.com", ten,
			"clusters: [{cluster: {server: \"https://10.0.0.1:6443\"}}]", "clusters: [{cluster: {server: \"https://api.example.com:6443\"}}]",
		},
		"the endpoint itself":   {"10.0.0.1", ten, "clusters: [{cluster: {server: \"https://10.0.0.1:6443\"}}]", ""},
		"nothing moved":         {"10.0.0.2", nil, "clusters: [{cluster: {server: \"https://10.0.0.1:6443\"}}]", ""},
		"an invalid former one": {"10.0.0.2", []string{"", ":", "10.0.0.1", "x:"}, "clusters: [{cluster: {server: \"https://10.0.0.1:6443\"}}]", ""},
		"empty":                 {"10.0.0.2", ten, "", ""},
		"other shapes":          {"10.0.0.2", ten, "clusters:\n- [server, https://10.0.0.1:6443]\n- cluster: https://10.0.0.1:6443\n- cluster: {server: [https://10.0.0.1:6443]}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rules(t, test.host, test.former...)
			want := test.want
			if want == "" {
				want = test.text
			}
			for range 2 {
				got, err := r.Kubeconfig([]byte(test.text), nil)
				if err != nil || string(got) != want {
					t.Fatalf("got %q: %v", got, err)
				}
				test.text = want
			}
		})
	}
}

func TestExemptHosts(t *testing.T) {
	t.Parallel()
	const text = "clusters: [{cluster: {server: 'https://[2001:db8::1]:6443'}}, {cluster: {server: 'https://10.0.0.1:6443'}}]"
	r := rules(t, "10.0.0.2", "[2001:db8::1]:6443", "10.0.0.1:6443")
	got, err := r.Kubeconfig([]byte(text), func(host string) bool { return host == "2001:db8::1" })
	if want := strings.Replace(text, "10.0.0.1", "10.0.0.2", 1); err != nil || string(got) != want {
		t.Errorf("got %q: %v", got, err)
	}
}

// A value that cannot be replaced exactly is an error that names its line.
func TestUnsupportedScalars(t *testing.T) {
	t.Parallel()
	r := rules(t, "10.0.0.2", "10.0.0.1:6443")
	for _, text := range []string{
		"x: &s https://10.0.0.1:6443\nclusters:\n- cluster:\n    server: *s\n",
		"x: 1\nclusters:\n- cluster:\n    server: &s https://10.0.0.1:6443\n",
		"x: 1\nclusters:\n- cluster:\n    server: !!str https://10.0.0.1:6443\n",
		"x: 1\nclusters:\n- cluster:\n    server: \"https:\\x2f/10.0.0.1:6443\"\n",
	} {
		got, err := r.Kubeconfig([]byte(text), nil)
		if err == nil || !strings.Contains(err.Error(), "line 4") || !strings.Contains(err.Error(), "https://10.0.0.2:6443") {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
	if _, err := r.Kubeconfig([]byte("clusters: ["), nil); err == nil {
		t.Error("no error for invalid YAML")
	}
}

func TestInvalidEndpoints(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"", "a b", "10.0.0.1\"", "x\nserver: y", "fe80::1%eth0", "[::1]", "a..b", "-a", "a/b", "a:1"} {
		if r, err := rewrite.New(protocol.Endpoint{Host: host, Port: 6443}); err == nil {
			t.Errorf("%q was accepted as %q", host, r.Endpoint())
		}
	}
	for _, port := range []int32{0, -1, 65536} {
		if _, err := rewrite.New(protocol.Endpoint{Host: "10.0.0.1", Port: port}); err == nil {
			t.Errorf("no error for port %d", port)
		}
	}
}

func TestClusterConfiguration(t *testing.T) {
	t.Parallel()
	const form = "apiServer:\n  certSANs: [10.0.0.1]\ncontrolPlaneEndpoint: %\nkind: ClusterConfiguration\n"
	for from, to := range map[string]string{
		"10.0.0.1:6443":        "10.0.0.2:6443",
		"10.0.0.1":             "10.0.0.2:6443",
		`"10.0.0.1:6443"`:      `"10.0.0.2:6443"`,
		`'[2001:db8::1]:6443'`: `'10.0.0.2:6443'`,
		`""`:                   `""`,
		"10.0.0.1:443":         "10.0.0.1:443",
		"api.example.com:6443": "api.example.com:6443",
	} {
		r := rules(t, "10.0.0.2", "10.0.0.1:6443", "[2001:db8::1]:6443")
		got, err := r.ClusterConfiguration([]byte(strings.Replace(form, "%", from, 1)))
		if want := strings.Replace(form, "%", to, 1); err != nil || string(got) != want {
			t.Errorf("%s: got %q: %v", from, got, err)
		}
	}
	r := rules(t, "2001:db8::2", "10.0.0.1:6443")
	got, err := r.ClusterConfiguration([]byte("controlPlaneEndpoint: 10.0.0.1:6443"))
	if want := `controlPlaneEndpoint: "[2001:db8::2]:6443"`; err != nil || string(got) != want {
		t.Errorf("got %q: %v", got, err)
	}
}

func TestConfiguration(t *testing.T) {
	t.Parallel()
	for from, to := range map[string]string{
		"https://10.0.0.1:6443": "https://10.0.0.2:6443",
		"https://10.0.0.1:9345": "https://10.0.0.2:9345", // RKE2's port for joining nodes
		"https://10.0.0.1:8443": "https://10.0.0.1:8443",
		"https://10.0.0.3:9345": "https://10.0.0.3:9345",
		"https://10.0.0.2:9345": "https://10.0.0.2:9345",
	} {
		r := rules(t, "10.0.0.2", "10.0.0.1:6443", "10.0.0.2:443")
		got, err := r.Configuration([]byte("token: x\nserver: " + from + "\n"))
		if want := "token: x\nserver: " + to + "\n"; err != nil || string(got) != want {
			t.Errorf("%s: got %q: %v", from, got, err)
		}
	}
}

func TestNamesEndpoint(t *testing.T) {
	t.Parallel()
	r := rules(t, "2001:db8::2", "10.0.0.1:6443")
	for text, want := range map[string]bool{
		"clusters: [{cluster: {server: 'https://[2001:db8:0::2]:6443'}}]": true,
		"clusters: [{cluster: {server: 'https://[2001:db8:0::2]'}}]":      false,
		"clusters: [{cluster: {server: 'https://10.0.0.1:6443'}}]":        false,
		"": false,
	} {
		if got, err := r.NamesEndpoint([]byte(text)); got != want || err != nil {
			t.Errorf("%s: %t, %v", text, got, err)
		}
	}
	if !r.Moved() || rules(t, "10.0.0.1", "10.0.0.1:6443").Moved() {
		t.Error("an endpoint that is its own former one has not moved")
	}
}

// For any document, only the servers of the result differ, and replacing again
// changes nothing.
func FuzzKubeconfig(f *testing.F) {
	f.Add("clusters:\n- cluster:\n    server: https://10.0.0.1:6443\n")
	f.Add(`{"clusters":[{"cluster":{"server":"https://10.0.0.1:6443"}},{"cluster":{"server":'https://10.0.0.1:6443'}}]}`)
	f.Add("clusters: [{cluster: {server: \"https://10.0.0.1:6443\"}}] # \u2028 é\n")
	f.Fuzz(func(t *testing.T, text string) {
		r := rules(t, "10.0.0.2", "10.0.0.1:6443")
		before, err := rewrite.Servers([]byte(text))
		if err != nil {
			return
		}
		got, err := r.Kubeconfig([]byte(text), nil)
		if err != nil {
			return
		}
		after, err := rewrite.Servers(got)
		if err != nil || len(after) != len(before) {
			t.Fatalf("%q became %q: %v", text, got, err)
		}
		for i, server := range before {
			want, _ := r.URL(server, nil)
			if after[i] != want {
				t.Fatalf("%q became %q", server, after[i])
			}
		}
		if again, err := r.Kubeconfig(got, nil); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%q became %q: %v", got, again, err)
		}
	})
}
