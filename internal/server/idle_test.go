package server_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// idleHosts is large enough to make costs negligible that do not grow with hosts.
	idleHosts = 2000
	// pollersVariable makes this program act as the hosts instead of running tests.
	pollersVariable = "ELEMENTAL_TEST_POLLERS"
	idleTimeout     = 3 * time.Minute
)

// BenchmarkIdleHost measures the memory that a connected host costs the manager: the live
// bytes after a garbage collection, in heap and stacks, of its cached object and its waiting
// poll. It also reports their ratio to a poll that waits in an empty handler. The hosts are
// in another process.
func BenchmarkIdleHost(b *testing.B) {
	for b.Loop() {
		p := startPollers(b)
		start := live()
		stop, target := bare(b)
		p.send(b, target)
		NewWithT(b).Eventually(target.waiting.Load).WithTimeout(idleTimeout).Should(BeEquivalentTo(idleHosts))
		plain := live().since(start)
		p.send(b, pollTarget{})
		stop()

		m := newBench(b)
		start = live()
		m.memory.AddFleet(b, fleetSpace, idleHosts, func(i int, host *infrav1.ElementalHost) {
			host.Spec.Identity.KeyFingerprint = p.fingerprints[i]
		})
		object := live().since(start)
		m.start()
		settled := live()
		bundle, err := m.authority.Bundle(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		p.send(b, pollTarget{URL: m.url + protocol.PathPlan + "?boot=b&after=", Roots: bundle})
		NewWithT(b).Eventually(m.waits).WithTimeout(idleTimeout).Should(BeEquivalentTo(idleHosts))
		poll := live().since(settled)
		p.send(b, pollTarget{})

		b.ReportMetric(plain.total(), "bare-B/host")
		b.ReportMetric(plain.stack, "bare-stack-B/host")
		b.ReportMetric(poll.total(), "poll-B/host")
		b.ReportMetric(poll.stack, "poll-stack-B/host")
		b.ReportMetric(poll.objects, "poll-objects/host")
		b.ReportMetric(object.total(), "cache-B/host")
		b.ReportMetric((poll.total()+object.total())/plain.total(), "x-bare")
	}
	b.ReportMetric(0, "ns/op") // the time has no meaning
}

// memory is the memory in use.
type memory struct{ heap, stack, objects float64 }

// live collects garbage, which also shrinks stacks, until the memory in use is stable.
func live() memory {
	var s runtime.MemStats
	const rounds = 6
	for range rounds {
		runtime.GC()
	}
	runtime.ReadMemStats(&s)
	return memory{float64(s.HeapAlloc), float64(s.StackInuse), float64(s.HeapObjects)}
}

// since returns the difference for each host.
func (m memory) since(before memory) memory {
	return memory{(m.heap - before.heap) / idleHosts, (m.stack - before.stack) / idleHosts, (m.objects - before.objects) / idleHosts}
}

func (m memory) total() float64 { return m.heap + m.stack }

// pollTarget is the URL that the hosts poll. Empty: they stop.
type pollTarget struct {
	URL, Roots string

	waiting *atomic.Int64
}

// bare serves polls that never end.
func bare(b *testing.B) (stop func(), _ pollTarget) {
	b.Helper()
	key, err := identity.NewKey()
	if err != nil {
		b.Fatal(err)
	}
	certificate, err := identity.ClientCertificate(key)
	if err != nil {
		b.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	target := pollTarget{URL: "https://" + listener.Addr().String() + "/", waiting: &atomic.Int64{}}
	s := &http.Server{
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			target.waiting.Add(1)
			<-r.Context().Done()
		}),
		ReadHeaderTimeout: idleTimeout,
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert,
			Certificates: []tls.Certificate{certificate}, SessionTicketsDisabled: true,
		},
	}
	ended := make(chan error, 1)
	go func() { ended <- s.ServeTLS(listener, "", "") }()
	return func() {
		_ = s.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			b.Error(err)
		}
	}, target
}

// pollers is the process of the hosts.
type pollers struct {
	fingerprints []string
	in           io.Writer
	out          *bufio.Reader
}

func startPollers(b *testing.B) *pollers {
	b.Helper()
	command := exec.Command(os.Args[0], "-test.run=^$")
	command.Env, command.Stderr = append(os.Environ(), pollersVariable+"=1"), os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		if err := command.Wait(); err != nil {
			b.Error(err)
		}
	})
	p := &pollers{in: in, out: bufio.NewReader(out)}
	for range idleHosts {
		line, err := p.out.ReadString('\n')
		if err != nil {
			b.Fatal(err)
		}
		p.fingerprints = append(p.fingerprints, strings.TrimSpace(line))
	}
	return p
}

// send makes the hosts poll a target, or stop. It returns when all hosts do.
func (p *pollers) send(b *testing.B, target pollTarget) {
	b.Helper()
	if err := json.NewEncoder(p.in).Encode(target); err != nil {
		b.Fatal(err)
	}
	if target.URL == "" {
		if _, err := p.out.ReadString('\n'); err != nil {
			b.Fatal(err)
		}
	}
}

// pollForever runs in the process of the hosts, until its input ends.
func pollForever(in io.Reader, out io.Writer) error {
	keys := make([]*ecdsa.PrivateKey, idleHosts)
	for i := range keys {
		var err error
		if keys[i], err = identity.NewKey(); err != nil {
			return err
		}
		spki, err := identity.PublicKeyBytes(keys[i])
		if err != nil {
			return err
		}
		fmt.Fprintln(out, identity.Fingerprint(spki))
	}
	targets := json.NewDecoder(in)
	for {
		var target, end pollTarget
		if err := targets.Decode(&target); err != nil {
			return nil //nolint:nilerr // the parent process has ended
		}
		ctx, cancel := context.WithCancel(context.Background())
		var polls sync.WaitGroup
		for _, key := range keys {
			polls.Go(func() { pollAs(ctx, key, target) })
		}
		err := targets.Decode(&end)
		cancel()
		polls.Wait()
		if err != nil {
			return nil //nolint:nilerr // the parent process has ended
		}
		fmt.Fprintln(out, "left")
	}
}

// pollAs polls as one host until the context ends.
func pollAs(ctx context.Context, key *ecdsa.PrivateKey, target pollTarget) {
	certificate, err := identity.ClientCertificate(key)
	if err != nil {
		return
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}}
	if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM([]byte(target.Roots)) {
		config.InsecureSkipVerify = true
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	revision := ""
	for ctx.Err() == nil {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.URL+revision, http.NoBody)
		if err != nil {
			return
		}
		answer, err := (&http.Client{Transport: transport}).Do(request)
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			continue
		}
		var p protocol.Plan
		if json.NewDecoder(answer.Body).Decode(&p) == nil {
			revision = p.Revision
		}
		_ = answer.Body.Close()
	}
}

// waits counts the hosts whose polls wait: each has received its plan before.
func (m *bench) waits() (int, error) {
	families, err := m.metrics.Gather()
	if err != nil {
		return 0, err
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			values[f.GetName()] += one.GetGauge().GetValue() + one.GetCounter().GetValue()
		}
	}
	if values["elemental_agent_api_requests_total"] < idleHosts {
		return 0, nil
	}
	return int(values["elemental_agent_api_connected_hosts"]), nil
}
