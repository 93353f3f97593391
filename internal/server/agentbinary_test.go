package server_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/servedfiles"
)

// fetching is the API with agent binaries, one of which a registration requires.
type fetching struct {
	*WithT
	*harness
	folder string
	// binary is the required one for amd64, and digest its SHA-256.
	binary, digest string
}

func newFetching(t *testing.T, size int, change ...func(*server.Options)) *fetching {
	t.Helper()
	return fetchingFrom(t, func(change ...func(*server.Options)) *harness { return start(t, change...) }, size, change...)
}

// fetchingFrom is newFetching with an API that start starts.
func fetchingFrom(t *testing.T, start func(...func(*server.Options)) *harness, size int, change ...func(*server.Options)) *fetching {
	t.Helper()
	f := &fetching{WithT: NewWithT(t), folder: t.TempDir()}
	content := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(content)
	f.binary, f.digest = string(content), digestOf(string(content))
	f.write("agent", f.binary)
	f.harness = start(append([]func(*server.Options){func(o *server.Options) {
		o.Agents = served(t, o.Clock, f.folder, protocol.MaxAgentBytes)
	}}, change...)...)
	f.registration("edge", func(r *infrav1.ElementalRegistration) {
		r.Spec.Agent = &infrav1.AgentRelease{Version: "v0.2.0", Binaries: []infrav1.AgentBinary{
			{Architecture: "amd64", SHA256: f.digest}, {Architecture: "arm64", SHA256: digestOf("arm64")},
		}}
	})
	return f
}

// served returns a store that has hashed the files of a folder.
func served(t *testing.T, c clock.Clock, folder string, maxBytes int64) *servedfiles.Store {
	t.Helper()
	store := servedfiles.New(servedfiles.Options{Folders: []string{folder}, MaxBytes: maxBytes}, c)
	store.Scan(t.Context())
	return store
}

func digestOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

func (f *fetching) write(name, content string) {
	f.Expect(os.WriteFile(filepath.Join(f.folder, name), []byte(content), 0o600)).To(Succeed())
}

// updatable returns an agent whose host is approved and can update itself.
func (f *fetching) updatable() *agent {
	f.tb.Helper()
	token, _ := f.token("edge", func(t *enrolment.Token) { t.MaxUses = 1 })
	a := f.enrolled(token)
	hello := enrolRequest().Hello
	hello.Capabilities = append(hello.Capabilities, protocol.CapabilityUpdate)
	got := a.call(http.MethodPost, protocol.PathReport, protocol.Report{Hello: &hello})
	f.Expect(got.status).To(Equal(http.StatusNoContent), got.body)
	return a
}

// download is an answer whose body may be read slowly or not at all. It is closed
// when the test ends.
type download struct {
	StatusCode    int
	Proto         string
	Header        http.Header
	ContentLength int64
	Body          io.Reader
}

// fetch requests an agent binary. headers are alternating names and values.
func (a *agent) fetch(ctx context.Context, digest string, headers ...string) download {
	a.h.tb.Helper()
	return a.fetchFile(ctx, protocol.PathAgent, digest, headers...)
}

// fetchFile requests a file of a kind by its digest.
func (a *agent) fetchFile(ctx context.Context, path, digest string, headers ...string) download {
	a.h.tb.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.h.url+path+"?sha256="+digest, http.NoBody)
	a.h.must(err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := a.http.Do(req)
	a.h.must(err)
	a.h.tb.Cleanup(func() { _ = resp.Body.Close() })
	return download{resp.StatusCode, resp.Proto, resp.Header, resp.ContentLength, resp.Body}
}

// body returns the digest of the body, which is shorter in failure messages.
func (f *fetching) body(resp download) string {
	f.tb.Helper()
	text, err := io.ReadAll(resp.Body)
	f.must(err)
	return digestOf(string(text))
}

func TestAgentIsServed(t *testing.T) {
	f := newFetching(t, 1<<20)
	a := f.updatable()
	agent := a.plan("").Desired.Agent
	f.Expect(agent).To(Equal(&protocol.AgentRelease{Version: "v0.2.0", SHA256: f.digest}))
	resp := a.fetch(t.Context(), agent.SHA256)
	f.Expect(resp.StatusCode).To(Equal(http.StatusOK))
	f.Expect(resp.ContentLength).To(Equal(int64(len(f.binary))))
	f.Expect(resp.Header.Get("Content-Type")).To(Equal("application/octet-stream"))
	f.Expect(resp.Header.Get("ETag")).To(Equal(`"` + f.digest + `"`))
	f.Expect(resp.Header.Get("Accept-Ranges")).To(Equal("bytes"))
	f.Expect(f.body(resp)).To(Equal(f.digest))
}

// An interrupted download is resumed, unless the file has changed.
func TestAgentIsResumed(t *testing.T) {
	f := newFetching(t, 300_000)
	a := f.updatable()
	const have = 123_456
	tag := `"` + f.digest + `"`
	resp := a.fetch(t.Context(), f.digest, "Range", "bytes="+strconv.Itoa(have)+"-", "If-Range", tag)
	f.Expect(resp.StatusCode).To(Equal(http.StatusPartialContent))
	f.Expect(resp.Header.Get("Content-Range")).To(Equal(fmt.Sprintf("bytes %d-299999/300000", have)))
	f.Expect(resp.ContentLength).To(Equal(int64(len(f.binary) - have)))
	f.Expect(f.body(resp)).To(Equal(digestOf(f.binary[have:])))

	resp = a.fetch(t.Context(), f.digest, "Range", "bytes=5-", "If-Range", `"another"`)
	f.Expect(resp.StatusCode).To(Equal(http.StatusOK))
	f.Expect(f.body(resp)).To(Equal(f.digest))

	resp = a.fetch(t.Context(), f.digest, "Range", "bytes=300000-")
	f.Expect(resp.StatusCode).To(Equal(http.StatusRequestedRangeNotSatisfiable))
}

// A host that must not download a binary gets the same answer for every digest.
func TestAgentsThatAreRefused(t *testing.T) {
	f := newFetching(t, 1000)
	f.write("secret", "of another registration")
	others := f.registration("others", func(r *infrav1.ElementalRegistration) {
		r.Spec.Agent = &infrav1.AgentRelease{Version: "v9.0.0", Binaries: []infrav1.AgentBinary{
			{Architecture: "amd64", SHA256: digestOf("of another registration")},
		}}
	})
	f.Expect(others.Spec.Agent).NotTo(BeNil())
	a := f.updatable()
	get := func(who *agent, digest string) answer {
		return who.call(http.MethodGet, protocol.PathAgent+"?sha256="+digest, nil)
	}
	nothing := get(a, digestOf("nothing"))
	f.Expect(nothing.status).To(Equal(http.StatusNotFound))
	f.Expect(nothing.problem().Type).To(Equal(protocol.ProblemNoOperation))
	for name, digest := range map[string]string{
		"another registration's": digestOf("of another registration"),
		"another architecture's": digestOf("arm64"),
		"upper case":             strings.ToUpper(f.digest),
		"none":                   "",
		"a path":                 "../agent",
		"a name":                 "agent",
	} {
		got := get(a, digest)
		f.Expect([]any{got.status, got.body}).To(Equal([]any{nothing.status, nothing.body}), name)
	}
	f.Expect(get(a, strings.Repeat("a", 200)).status).To(Equal(http.StatusBadRequest))
	f.Expect(get(f.agent(), f.digest).problem().Type).To(Equal(protocol.ProblemUnknownHost))

	for name, change := range map[string]func(*infrav1.ElementalHost){
		"pending":  func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalPending },
		"rejected": func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected },
		"fenced": func(h *infrav1.ElementalHost) {
			h.Spec.Claim = &infrav1.HostClaim{ID: "x", ClusterName: "c", MachineName: "m", Phase: infrav1.ClaimReleasing}
			h.Spec.Fence = &infrav1.HostFence{Reason: "dead"}
		},
		"locked": func(h *infrav1.ElementalHost) { h.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned} },
	} {
		other := f.updatable()
		f.Expect(get(other, f.digest).status).To(Equal(http.StatusOK))
		f.cachedSoon(f.patch(other.name, change))
		got := get(other, f.digest)
		f.Expect(got.status).To(BeElementOf(http.StatusForbidden, http.StatusNotFound), name)
		f.Expect(got.header.Get("Content-Type")).To(Equal("application/problem+json"), name)
	}

	// Required, but missing: an administrator has to provide the file.
	f.must(os.Remove(filepath.Join(f.folder, "agent")))
	got := get(a, f.digest)
	f.Expect(got.status).To(Equal(http.StatusServiceUnavailable))
	after, err := strconv.Atoi(got.header.Get("Retry-After"))
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(after).To(BeNumerically(">=", 60))
}

// A manager without agents serves none.
func TestNoAgentsAreServed(t *testing.T) {
	f := newFetching(t, 1000, func(o *server.Options) { o.Agents = nil })
	a := f.updatable()
	f.Expect(a.call(http.MethodGet, protocol.PathAgent+"?sha256="+f.digest, nil).status).To(Equal(http.StatusNotFound))
}

// large is more than the kernel and HTTP/2 buffer for a reader that does not read.
const large = 48 << 20

// Concurrent downloads are bounded, and each host has one.
func TestThreat14_DownloadsAreBounded(t *testing.T) {
	f := newFetching(t, large, func(o *server.Options) { o.AgentDownloads = 2 })
	a, b, c := f.updatable(), f.updatable(), f.updatable()
	ctx, cancel := context.WithCancel(t.Context())
	first := a.fetch(ctx, f.digest)
	f.Expect(first.StatusCode).To(Equal(http.StatusOK))
	busy := func(who *agent) {
		t.Helper()
		resp := who.fetch(t.Context(), f.digest)
		f.Expect(resp.StatusCode).To(Equal(http.StatusServiceUnavailable))
		after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(after).To(And(BeNumerically(">=", 5), BeNumerically("<=", 30)))
	}
	busy(a)
	second := b.fetch(t.Context(), f.digest)
	f.Expect(second.StatusCode).To(Equal(http.StatusOK))
	busy(c)

	// The rest of the API is not affected.
	f.Expect(c.plan("").Desired.Agent).NotTo(BeNil())
	cancel()
	f.Eventually(func() int { return c.fetch(t.Context(), f.digest, "Range", "bytes=0-9").StatusCode }, eventually, often).
		Should(Equal(http.StatusPartialContent), "who hangs up leaves the place")
	f.Expect(f.body(second)).To(Equal(f.digest), "over HTTP/2, while others come and go")
}

// A caller that stops reading loses its slot soon. The test of the writer's pace covers a caller
// that reads slowly.
func TestThreat14_SlowReader(t *testing.T) {
	for _, protocols := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocols, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := func(change ...func(*server.Options)) *harness { return startInBubble(t, change...) }
				// HTTP/2 buffers 4 MiB.
				const size, stall = 8 << 20, 10 * time.Second
				f := fetchingFrom(t, start, size, func(o *server.Options) { o.AgentDownloads, o.DownloadStall = 1, stall })
				stalled, next := f.updatable(), f.updatable()
				speak(stalled, protocols)
				resp := stalled.fetch(t.Context(), f.digest)
				f.Expect(resp.Proto).To(Equal(protocols))
				_, err := io.ReadFull(resp.Body, make([]byte, 1000))
				f.Expect(err).NotTo(HaveOccurred())
				// Over HTTP/1.1 the server then tells the caller for so long that it closes the connection.
				const moment, closing = time.Millisecond, 5 * time.Second
				time.Sleep(stall - moment)
				f.Expect(next.fetch(t.Context(), f.digest).StatusCode).To(Equal(http.StatusServiceUnavailable))
				time.Sleep(closing + 2*moment)
				got := next.fetch(t.Context(), f.digest)
				f.Expect(got.StatusCode).To(Equal(http.StatusOK), "the slot is free")
				f.Expect(f.body(got)).To(Equal(f.digest))
				_, err = io.Copy(io.Discard, resp.Body)
				f.Expect(err).To(HaveOccurred(), "the download was ended")
			})
		})
	}
}

// speak makes the agent use only that version of HTTP.
func speak(a *agent, version string) {
	before := a.http.Transport.(*http.Transport)
	protocols := &http.Protocols{}
	protocols.SetHTTP1(version == "HTTP/1.1")
	protocols.SetHTTP2(version == "HTTP/2.0")
	config := &tls.Config{RootCAs: before.TLSClientConfig.RootCAs, Certificates: before.TLSClientConfig.Certificates, MinVersion: tls.VersionTLS13}
	transport := &http.Transport{TLSClientConfig: config, Protocols: protocols, DialContext: before.DialContext}
	a.h.tb.Cleanup(transport.CloseIdleConnections)
	a.http = &http.Client{Transport: transport}
}
