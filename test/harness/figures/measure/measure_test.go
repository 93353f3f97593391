package measure

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
)

func TestQuantile(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Quantile(nil, 0.5)).To(BeZero())
	var samples []time.Duration
	for i := 100; i > 0; i-- {
		samples = append(samples, time.Duration(i))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.01: 1, 0.5: 50, 0.501: 51, 0.99: 99, 0.991: 100, 1: 100} {
		g.Expect(Quantile(samples, q)).To(Equal(want), "%v", q)
	}
	g.Expect(samples[0]).To(BeEquivalentTo(100), "the caller's order stays")
}

func TestParseCPU(t *testing.T) {
	g := NewWithT(t)
	line := "7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 250 31 14 15 20 0 1 0 5 6"
	g.Expect(parseCPU(line)).To(Equal(2810 * time.Millisecond))
	_, err := parseCPU("7 (a) S 1 2")
	g.Expect(err).To(HaveOccurred())
}

// This process is one, too: what it uses is counted.
func TestProcess(t *testing.T) {
	g := NewWithT(t)
	p := Process(os.Getpid())
	// The ballast must not take the place of garbage.
	debug.FreeOSMemory()
	before, err := p.Memory()
	g.Expect(err).NotTo(HaveOccurred())
	const size = 64 << 20
	ballast := bytes.Repeat([]byte{1}, size)
	after, err := p.Memory()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(after).To(BeNumerically(">", before+size/2))
	g.Expect(ballast).To(HaveLen(size))

	start, err := p.CPU()
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() (time.Duration, error) {
		for n := range 1 << 20 {
			ballast[n%size]++
		}
		now, err := p.CPU()
		return now - start, err
	}).WithTimeout(time.Minute).Should(BeNumerically(">=", 5*tick))

	_, err = Process(0).Memory()
	g.Expect(err).To(MatchError(os.ErrNotExist))
	_, err = Process(0).CPU()
	g.Expect(err).To(MatchError(os.ErrNotExist))
}

const metrics = `# HELP apiserver_request_total x
apiserver_request_total{code="201",component="apiserver",dry_run="",group="infrastructure.cluster.x-k8s.io",resource="elementalhosts",scope="resource",subresource="",verb="POST",version="v1beta2"} 12
apiserver_request_total{code="200",group="infrastructure.cluster.x-k8s.io",resource="elementalhosts",subresource="status",verb="PATCH"} 1e+01
apiserver_request_total{code="200",group="infrastructure.cluster.x-k8s.io",resource="elementalhosts",subresource="status",verb="PATCH",version="v1beta1"} 1
apiserver_request_total{code="409",group="",resource="secrets",subresource="",verb="PATCH"} 3
apiserver_request_total{code="200",group="coordination.k8s.io",resource="leases",subresource="",verb="PUT"} 4
apiserver_request_total{code="201",group="events.k8s.io",resource="events",subresource="",verb="POST"} 5
apiserver_request_total{code="201",group="authentication.k8s.io",resource="tokenreviews",subresource="",verb="POST"} 6
apiserver_request_total{code="200",group="",resource="secrets",subresource="",verb="GET"} 7
elemental_hosts 41.5
elemental_hosts_total 3
`

func TestWrites(t *testing.T) {
	g := NewWithT(t)
	status, body := http.StatusOK, metrics
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	s, err := NewAPIServer(&rest.Config{Host: server.URL})
	g.Expect(err).NotTo(HaveOccurred())
	w, err := s.Writes(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.Only(Write.Object).String()).To(Equal(
		"PATCH infrastructure.cluster.x-k8s.io/elementalhosts/status 200: 11, POST infrastructure.cluster.x-k8s.io/elementalhosts 201: 12"))
	g.Expect(w.Total()).To(Equal(12 + 11 + 3 + 4 + 5 + 6))
	g.Expect(w.Only(Write.Lease).Total()).To(Equal(4))
	g.Expect(w.Only(Write.Event).Total()).To(Equal(5))
	g.Expect(w).To(HaveLen(6))
	before := Writes{Write{Verb: "POST", Group: "infrastructure.cluster.x-k8s.io", Resource: "elementalhosts", Code: 201}: 10}
	g.Expect(w.Since(before).Only(Write.Object).Total()).To(Equal(13))
	g.Expect(w.Since(w)).To(BeEmpty())

	g.Expect(NewGauges().Read(t.Context(), server.URL+"/metrics", "elemental_hosts")).To(Equal(41.5))
	_, err = NewGauges().Read(t.Context(), server.URL+"/metrics", "elemental")
	g.Expect(err).To(MatchError("there is no metric elemental"))
	g.Expect(NewGauges().Sum(t.Context(), server.URL+"/metrics", "apiserver_request_total", `resource="elementalhosts"`, `verb="POST"`)).To(Equal(12.0))
	g.Expect(NewGauges().Sum(t.Context(), server.URL+"/metrics", "apiserver_request_total", `verb="NONE"`)).To(BeZero())

	body = strings.Replace(metrics, `verb="POST",version="v1beta2"} 12`, `verb="POST"} twelve`, 1)
	_, err = s.Writes(t.Context())
	g.Expect(err).To(MatchError(ContainSubstring("twelve")))
	status = http.StatusForbidden
	_, err = s.Writes(t.Context())
	g.Expect(err).To(MatchError(ContainSubstring("403")))
}

func TestThisMachine(t *testing.T) {
	g := NewWithT(t)
	m, err := ThisMachine()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(m.CPU).NotTo(BeEmpty())
	g.Expect(m.Cores).To(BeNumerically(">", 0))
	g.Expect(m.Memory).To(BeNumerically(">", 1<<28))
	g.Expect(m.Kernel).To(MatchRegexp(`^\d+\.\d+`))
	g.Expect(m.Go).To(MatchRegexp(`^1\.\d+`))
	g.Expect(parseModel("processor : 0\nmodel name\t: Some: CPU\nmodel name\t: Other\n")).To(Equal("Some: CPU"))
	g.Expect(parseModel("processor : 0\n")).NotTo(BeEmpty())
}
