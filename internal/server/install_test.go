package server_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
)

// offered is the name of the file that is offered to hosts without an agent.
const offered = "elemental-agent-linux-amd64"

// newInstalling is the API with these files as its agents. A registration pins the one that
// is offered.
func newInstalling(t *testing.T, files map[string]string) *fetching {
	t.Helper()
	f := &fetching{WithT: NewWithT(t), folder: t.TempDir(), binary: files[offered], digest: digestOf(files[offered])}
	for name, content := range files {
		f.write(name, content)
	}
	f.harness = start(t, func(o *server.Options) {
		// Nobody reads the downloads that take the places, for as long as the test runs.
		o.Agents, o.DownloadStall = served(t, o.Clock, f.folder, protocol.MaxAgentBytes), 10*eventually
	})
	f.registration("edge", func(r *infrav1.ElementalRegistration) {
		r.Spec.Agent = &infrav1.AgentRelease{Version: "v0.2.0", Binaries: []infrav1.AgentBinary{{Architecture: "amd64", SHA256: f.digest}}}
	})
	return f
}

// keyless returns a caller without a client certificate, from a local address.
func (h *harness) keyless(from string) *agent {
	h.tb.Helper()
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: h.roots, MinVersion: tls.VersionTLS13},
		ForceAttemptHTTP2: true,
	}
	h.tb.Cleanup(transport.CloseIdleConnections)
	a := h.agent()
	a.http = &http.Client{Transport: transport}
	return a.through(from, "")
}

// get returns the answer to a GET request whose body is not read.
func (a *agent) get(ctx context.Context, path string) download {
	a.h.tb.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.h.url+path, http.NoBody)
	a.h.must(err)
	resp, err := a.http.Do(req)
	a.h.must(err)
	a.h.tb.Cleanup(func() { _ = resp.Body.Close() })
	return download{resp.StatusCode, resp.Proto, resp.Header, resp.ContentLength, resp.Body}
}

const installAMD64 = protocol.PathInstallAgent + "?arch=amd64"

// A host without a key gets the script, with the digest of the agent that it then gets.
func TestAgentIsOfferedForInstallation(t *testing.T) {
	f := newInstalling(t, map[string]string{offered: "the agent", "secret": "of somebody"})
	a := f.keyless("127.0.0.1")
	got := a.call(http.MethodGet, protocol.PathInstall, nil)
	f.Expect(got.status).To(Equal(http.StatusOK), got.body)
	f.Expect(got.header.Get("Content-Type")).To(HavePrefix("text/x-shellscript"))
	f.Expect(got.body).To(ContainSubstring("amd64) echo " + digestOf("the agent") + " ;;"))
	f.Expect(got.body).NotTo(ContainSubstring("arm64) echo "+digestOf("the agent")), "no agent for arm64 is offered")
	got = a.call(http.MethodGet, installAMD64, nil)
	f.Expect([]any{got.status, got.body}).To(Equal([]any{http.StatusOK, "the agent"}))
	f.Expect(got.header.Get("ETag")).To(Equal(`"` + digestOf("the agent") + `"`))
	got = a.call(http.MethodGet, protocol.PathInstallAgent+"?arch=arm64", nil)
	f.Expect(got.status).To(Equal(http.StatusServiceUnavailable))
	f.Expect(got.header.Get("Retry-After")).To(Equal("60"))
}

// Files whose name is not that of an agent are not offered.
func TestNoAgentIsOffered(t *testing.T) {
	f := newInstalling(t, map[string]string{"agent": "the agent"})
	a := f.keyless("127.0.0.1")
	for _, path := range []string{protocol.PathInstall, installAMD64} {
		got := a.call(http.MethodGet, path, nil)
		f.Expect(got.status).To(Equal(http.StatusServiceUnavailable), path)
		f.Expect(got.header.Get("Content-Type")).To(Equal("application/problem+json"), path)
	}
}

// withOthers are an agent that is offered, and files that are not.
func withOthers(agent string) map[string]string {
	return map[string]string{offered: agent, "secret": "of somebody", "elemental-agent-linux-riscv64": "of somebody else"}
}

// Whoever has no key is refused on all other routes, and gets no other file.
func TestThreat80_CallersWithoutAKey(t *testing.T) {
	f := newInstalling(t, withOthers("the agent"))
	for route, got := range f.keyless("127.0.0.1").onAllRoutes() {
		switch route {
		case "GET " + protocol.PathInstall:
			f.Expect(got.status).To(Equal(http.StatusOK), route)
			for _, name := range []string{f.namespace, "edge", f.url, "token:", "BEGIN"} {
				f.Expect(got.body).NotTo(ContainSubstring(name), "the script has nothing of this installation but digests")
			}
		case "GET " + protocol.PathInstallAgent:
			f.Expect(got.status).To(Equal(http.StatusBadRequest), route)
		case "GET /v1/none":
			f.Expect(got.status).To(Equal(http.StatusNotFound), route)
		case "DELETE " + protocol.PathPlan:
			f.Expect(got.status).To(Equal(http.StatusMethodNotAllowed), route)
		default:
			f.Expect(got.status).To(Equal(http.StatusUnauthorized), route)
			f.Expect(got.problem().Type).To(Equal(protocol.ProblemUnknownHost), route)
		}
	}
	f.Expect(f.hosts()).To(BeEmpty())
	token, _ := f.token("edge")
	f.Expect(f.keyless("127.0.0.1").enrol(token).status).To(Equal(http.StatusUnauthorized), "a token does not replace a key")

	for _, arch := range []string{"", "secret", "riscv64", "../secret", "amd64/../../secret", "amd64%00", "AMD64", digestOf("of somebody")} {
		got := f.keyless("127.0.0.1").call(http.MethodGet, protocol.PathInstallAgent+"?arch="+arch, nil)
		f.Expect(got.status).To(Equal(http.StatusBadRequest), arch)
		got = f.keyless("127.0.0.1").call(http.MethodGet, installAMD64+"&sha256="+digestOf("of somebody")+"&arch="+arch, nil)
		f.Expect(got.body).To(Equal("the agent"), arch)
	}
}

// A source without a key makes few requests; others then still get theirs.
func TestThreat80_RateOfASource(t *testing.T) {
	f := newInstalling(t, withOthers("the agent"))
	greedy, other := f.keyless("127.0.0.2"), f.keyless("127.0.0.3")
	ask := func(who *agent) int { return who.get(t.Context(), protocol.PathInstall).StatusCode }
	answered := 0
	for range 1000 {
		if ask(greedy) != http.StatusOK {
			break
		}
		answered++
	}
	f.Expect(answered).To(Equal(200), "half of what all may have")
	for range 10 {
		f.Expect(ask(other)).To(Equal(http.StatusOK))
	}
	f.step(time.Minute)
	f.Expect(ask(greedy)).To(Equal(http.StatusOK), "the limit is one of the rate")
}

// All sources together make a limited number of requests.
func TestThreat80_RateOfAll(t *testing.T) {
	f := newInstalling(t, withOthers("the agent"))
	answered := 0
	for source := range 60 {
		from := f.keyless(fmt.Sprintf("127.0.1.%d", source+1))
		for range 10 {
			if from.get(t.Context(), protocol.PathInstall).StatusCode == http.StatusOK {
				answered++
			}
		}
	}
	f.Expect(answered).To(Equal(400))
}

// Downloads without a key are bounded by source and in all, and take no place of a host.
func TestThreat80_DownloadsAreBounded(t *testing.T) {
	f := newInstalling(t, withOthers(string(make([]byte, large))))
	begin := func(from string) int { return f.keyless(from).get(t.Context(), installAMD64).StatusCode }
	for range 8 {
		f.Expect(begin("127.0.0.2")).To(Equal(http.StatusOK))
	}
	f.Expect(begin("127.0.0.2")).To(Equal(http.StatusServiceUnavailable), "a source has half of the places")
	for range 8 {
		f.Expect(begin("127.0.0.3")).To(Equal(http.StatusOK))
	}
	f.Expect(begin("127.0.0.4")).To(Equal(http.StatusServiceUnavailable))
	f.Expect(f.metric("elemental_agent_api_downloads")).To(Equal(16.0))

	// An update of a host goes on.
	resp := f.updatable().fetch(t.Context(), f.digest)
	f.Expect(resp.StatusCode).To(Equal(http.StatusOK))
	f.Expect(f.body(resp)).To(Equal(f.digest))
}
