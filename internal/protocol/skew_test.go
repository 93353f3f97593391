package protocol_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// These types are the messages of v0.1 that have more fields now. They must never be
// changed.
type (
	planV01 struct {
		Revision string `json:"revision"`
		Desired  struct {
			Hostname    string   `json:"hostname,omitempty"`
			ProviderID  string   `json:"providerID,omitempty"`
			Servers     []string `json:"servers,omitempty"`
			TrustBundle string   `json:"trustBundle,omitempty"`
			Agent       *struct {
				Version string `json:"version"`
				SHA256  string `json:"sha256"`
			} `json:"agent,omitempty"`
		} `json:"desired"`
		Operation *struct {
			Type        string `json:"type"`
			ID          string `json:"id"`
			ClusterName string `json:"clusterName,omitempty"`
			MachineName string `json:"machineName,omitempty"`
		} `json:"operation,omitempty"`
		ServerTime time.Time `json:"serverTime"`
	}
	reportV01 struct {
		Hello *struct {
			Protocol     int      `json:"protocol"`
			AgentVersion string   `json:"agentVersion"`
			Capabilities []string `json:"capabilities,omitempty"`
			BootID       string   `json:"bootID,omitempty"`
		} `json:"hello,omitempty"`
		Cleanliness *struct {
			Clean bool `json:"clean"`
		} `json:"cleanliness,omitempty"`
		Operations []struct {
			Type  string `json:"type"`
			ID    string `json:"id"`
			State string `json:"state"`
		} `json:"operations,omitempty"`
	}
)

// recorded reads a recorded message.
func recorded(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// decode decodes a message as both sides do, and encodes the result.
func decode[T any](t *testing.T, message string) (T, string) {
	t.Helper()
	var value T
	if err := json.Unmarshal([]byte(message), &value); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return value, string(raw)
}

// v0.1 still decodes all fields that it knows, from messages of this version.
func TestOlderSideIgnoresWhatItDoesNotKnow(t *testing.T) {
	g := NewWithT(t)
	before, _ := decode[planV01](t, recorded(t, "plan-v0.1.json"))
	for _, name := range []string{"plan-endpoint.json", "plan-tunnel.json"} {
		p, _ := decode[planV01](t, recorded(t, name))
		p.Revision, p.Desired.Agent.Version = before.Revision, before.Desired.Agent.Version
		g.Expect(p).To(Equal(before), name)
	}
	was, _ := decode[reportV01](t, recorded(t, "report-v0.1.json"))
	for _, name := range []string{"report-endpoint.json", "report-tunnel.json"} {
		r, _ := decode[reportV01](t, recorded(t, name))
		r.Hello.AgentVersion, r.Hello.Capabilities = was.Hello.AgentVersion, was.Hello.Capabilities
		g.Expect(r).To(Equal(was), name)
	}
}

// This version decodes messages of older versions, whose new fields are empty, and
// loses nothing of its own messages.
func TestThisSideUnderstandsBoth(t *testing.T) {
	g := NewWithT(t)
	p, _ := decode[protocol.Plan](t, recorded(t, "plan-v0.1.json"))
	g.Expect(p.Operation.ID).To(Equal("c1"))
	g.Expect(p.Desired.Endpoint).To(BeNil())
	g.Expect(p.Desired.Tunnel).To(BeFalse())
	g.Expect(p.Desired.Files).To(BeNil(), "a manager that knows of no files takes none away")
	r, _ := decode[protocol.Report](t, recorded(t, "report-v0.1.json"))
	g.Expect(r.Endpoint).To(BeNil(), "unchanged")

	for name, decoded := range map[string]func(string) string{
		"plan-v0.1.json":       func(m string) string { _, raw := decode[protocol.Plan](t, m); return raw },
		"plan-endpoint.json":   func(m string) string { _, raw := decode[protocol.Plan](t, m); return raw },
		"plan-tunnel.json":     func(m string) string { _, raw := decode[protocol.Plan](t, m); return raw },
		"report-tunnel.json":   func(m string) string { _, raw := decode[protocol.Report](t, m); return raw },
		"report-v0.1.json":     func(m string) string { _, raw := decode[protocol.Report](t, m); return raw },
		"report-endpoint.json": func(m string) string { _, raw := decode[protocol.Report](t, m); return raw },
	} {
		message := recorded(t, name)
		g.Expect(decoded(message)).To(MatchJSON(message), name)
	}
}

// An empty list of files and an unknown one are different on the wire.
func TestFilesThatAreNotKnown(t *testing.T) {
	g := NewWithT(t)
	for _, test := range []struct {
		files []protocol.File
		want  string
	}{{nil, `{}`}, {[]protocol.File{}, `{"files":[]}`}} {
		raw, err := json.Marshal(protocol.Desired{Files: test.files})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(raw)).To(Equal(test.want))
		back, _ := decode[protocol.Desired](t, string(raw))
		g.Expect(back.Files == nil).To(Equal(test.files == nil))
	}
}
