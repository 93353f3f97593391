package server_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// agent sends the HTTP requests of a host's agent, also invalid ones.
type agent struct {
	h           *harness
	key         *ecdsa.PrivateKey
	fingerprint string
	http        *http.Client
	name        string
	id          string
	// home is the host that the agent says it was last enrolled as, NAMESPACE/NAME.
	home string
	// silent: the API server of the host sends nothing.
	silent atomic.Bool
}

func (h *harness) agent() *agent {
	h.tb.Helper()
	key, err := identity.NewKey()
	h.must(err)
	return h.agentWith(key)
}

func (h *harness) agentWith(key *ecdsa.PrivateKey) *agent {
	h.tb.Helper()
	cert, err := identity.ClientCertificate(key)
	h.must(err)
	spki, err := identity.PublicKeyBytes(key)
	h.must(err)
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: h.roots, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13},
		ForceAttemptHTTP2: true,
	}
	if h.network != nil {
		transport.DialContext = h.network.dialer("127.0.0.1")
	}
	h.tb.Cleanup(transport.CloseIdleConnections)
	return &agent{h: h, key: key, fingerprint: identity.Fingerprint(spki), http: &http.Client{Transport: transport}}
}

// enrolled returns an agent whose host is enrolled and approved.
func (h *harness) enrolled(token string) *agent {
	h.tb.Helper()
	a := h.agent()
	got := a.enrol(token)
	if got.status != http.StatusOK {
		h.tb.Fatalf("enrolling: %d %s", got.status, got.body)
	}
	return a
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) problem() protocol.Problem {
	var p protocol.Problem
	_ = json.Unmarshal([]byte(a.body), &p)
	return p
}

func (a *agent) do(ctx context.Context, method, path, token string, body any) (answer, error) {
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			return answer{}, err
		}
		reader = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.h.url+path, reader)
	if err != nil {
		return answer{}, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if a.home != "" {
		req.Header.Set(protocol.HeaderHome, a.home)
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, body: string(raw)}, err
}

func (a *agent) call(method, path string, body any) answer {
	a.h.tb.Helper()
	got, err := a.do(context.Background(), method, path, "", body)
	a.h.must(err)
	return got
}

func (a *agent) enrol(token string) answer {
	a.h.tb.Helper()
	return a.enrolAs(token, enrolRequest())
}

func (a *agent) enrolAs(token string, request protocol.EnrolRequest) answer {
	a.h.tb.Helper()
	got, err := a.do(context.Background(), http.MethodPost, protocol.PathEnrol, token, request)
	a.h.must(err)
	var response protocol.EnrolResponse
	if got.status == http.StatusOK && json.Unmarshal([]byte(got.body), &response) == nil {
		a.name, a.id = response.Name, response.HostID
	}
	return got
}

func enrolRequest() protocol.EnrolRequest {
	return protocol.EnrolRequest{
		Hello: protocol.Hello{
			Protocol: protocol.Version, AgentVersion: "v0.1.0", BootID: "boot-1",
			Capabilities: []protocol.Capability{protocol.CapabilityBootstrap, protocol.CapabilityReset},
		},
		Inventory: protocol.Inventory{
			Architecture: "amd64", SMBIOS: protocol.SMBIOS{SerialNumber: "SN 1"}, CPU: protocol.CPU{Cores: 4}, MemoryBytes: 8 << 30,
			NICs: []protocol.NIC{{Name: "eth0", MAC: "52:54:00:00:00:01", DefaultRoute: true, Addresses: []string{"10.0.0.5/24"}}},
		},
		Addresses:   []protocol.Address{{Type: protocol.AddressInternalIP, Address: "10.0.0.5"}},
		Cleanliness: protocol.Cleanliness{Clean: true},
	}
}

// plan returns the plan, which must differ from a revision.
func (a *agent) plan(after string) protocol.Plan {
	a.h.tb.Helper()
	got := a.call(http.MethodGet, protocol.PathPlan+"?after="+after, nil)
	if got.status != http.StatusOK {
		a.h.tb.Fatalf("plan: %d %s", got.status, got.body)
	}
	var p protocol.Plan
	a.h.must(json.Unmarshal([]byte(got.body), &p))
	return p
}

// planOf requests the plan with a boot ID, and does not wait for a change.
func (a *agent) planOf(boot string) answer {
	a.h.tb.Helper()
	return a.call(http.MethodGet, protocol.PathPlan+"?after=&boot="+boot, nil)
}

// poll opens a long poll and returns the channel of its answer.
func (a *agent) poll(ctx context.Context, after string) <-chan answer {
	return a.pollOf(ctx, "", after)
}

// pollOf is poll with a boot ID.
func (a *agent) pollOf(ctx context.Context, boot, after string) <-chan answer {
	out := make(chan answer, 1)
	go func() {
		got, err := a.do(ctx, http.MethodGet, protocol.PathPlan+"?boot="+boot+"&after="+after, "", nil)
		if err == nil {
			out <- got
		}
		close(out)
	}()
	return out
}
