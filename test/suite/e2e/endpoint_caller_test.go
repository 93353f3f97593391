//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// requestTimeout bounds one call that measures an outage.
	requestTimeout = 2 * time.Second
	// patientTimeout bounds one call that must not fail: a busy machine only makes it slow.
	patientTimeout = 20 * time.Second
	// readyPath says whether an API server and its etcd are well, versionPath only that it is there.
	readyPath, versionPath = "/readyz", "/version"
)

// errNoKubeconfig says that a caller did not know whom to call, which is no outage of the cluster.
var errNoKubeconfig = errors.New("reading the kubeconfig")

// caller calls a cluster's API server repeatedly, with a new connection for each call.
type caller struct {
	mu    sync.Mutex
	calls []call
	stop  func()
}

// call is one request and its result.
type call struct {
	began, ended time.Time
	// server is host:port in the kubeconfig; empty if that could not be read.
	server string
	err    error
}

// call starts a caller that reads the kubeconfig Secret each time, as a user does.
func (w workload) call(ctx context.Context, every time.Duration) *caller {
	GinkgoHelper()
	return startCaller(ctx, every, func(ctx context.Context) (string, error) { return w.ask(ctx, readyPath, requestTimeout) })
}

// callPatiently starts such a caller none of whose calls may fail.
func (w workload) callPatiently(ctx context.Context) *caller {
	GinkgoHelper()
	return startCaller(ctx, time.Second, func(ctx context.Context) (string, error) { return w.ask(ctx, versionPath, patientTimeout) })
}

// startCaller starts a caller. It runs until stop is called, at the latest until the spec ends.
func startCaller(ctx context.Context, every time.Duration, ask func(ctx context.Context) (at string, err error)) *caller {
	GinkgoHelper()
	// A failing step must not stop the calls, so ctx is the spec's.
	ctx, cancel := context.WithCancel(ctx)
	c := &caller{}
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			done := call{began: time.Now()}
			done.server, done.err = ask(ctx)
			done.ended = time.Now()
			if ctx.Err() != nil {
				return
			}
			c.mu.Lock()
			c.calls = append(c.calls, done)
			c.mu.Unlock()
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	c.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	DeferCleanup(c.stop)
	return c
}

// ask requests a path of the API server in the kubeconfig Secret.
func (w workload) ask(ctx context.Context, path string, timeout time.Duration) (at string, err error) {
	secret := &corev1.Secret{}
	if err := management.Get(ctx, client.ObjectKey{Namespace: w.namespace(), Name: w.Name + "-kubeconfig"}, secret); err != nil {
		return "", fmt.Errorf("%w: %w", errNoKubeconfig, err)
	}
	at = server(secret.Data["value"])
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	if err != nil {
		return at, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return at, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, http.NoBody)
	if err != nil {
		return at, err
	}
	answer, err := (&http.Transport{TLSClientConfig: tls, DisableKeepAlives: true, DialContext: dialTo(config.Host)}).RoundTrip(request)
	if err != nil {
		return at, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, body)
	}
	return at, err
}

func (c *caller) all() []call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls)
}

// outage is a period without successful calls: from the first failed call until the next
// successful one.
type outage struct {
	from, to time.Time
	first    error
}

func (o outage) lasted() time.Duration { return o.to.Sub(o.from) }

func (c *caller) outages() []outage {
	var all []outage
	var now *outage
	for _, one := range c.all() {
		switch {
		case errors.Is(one.err, errNoKubeconfig):
		case one.err != nil && now == nil:
			now = &outage{from: one.began, to: one.ended, first: one.err}
		case one.err != nil:
			now.to = one.ended
		case now != nil:
			now.to = one.ended
			all = append(all, *now)
			now = nil
		}
	}
	if now != nil {
		all = append(all, *now)
	}
	return all
}

// failingSince returns the beginning of the outage that goes on; zero if the last call was successful.
func (c *caller) failingSince() time.Time {
	calls, outages := c.all(), c.outages()
	if len(outages) == 0 || calls[len(calls)-1].err == nil {
		return time.Time{}
	}
	return outages[len(outages)-1].from
}

// addresses returns all addresses that the Secret contained, without ports.
func (c *caller) addresses() []string {
	GinkgoHelper()
	var all []string
	for _, one := range c.all() {
		if one.server == "" {
			continue
		}
		if host := hostOnly(one.server); !slices.Contains(all, host) {
			all = append(all, host)
		}
	}
	return all
}

// longestOutage prints the outages and returns the duration of the longest. There must have been a successful call.
func (c *caller) longestOutage() time.Duration {
	GinkgoHelper()
	var longest, slowest time.Duration
	for _, one := range c.outages() {
		fmt.Printf("  outage from %s for %.1f s: %v\n", one.from.Format(time.TimeOnly), one.lasted().Seconds(), one.first)
		longest = max(longest, one.lasted())
	}
	successful, unknown := 0, 0
	for _, one := range c.all() {
		switch {
		case one.err == nil:
			successful++
			slowest = max(slowest, one.ended.Sub(one.began))
		case errors.Is(one.err, errNoKubeconfig):
			unknown++
		}
	}
	fmt.Printf("  %d calls, %d of them without a kubeconfig; longest outage %.1f s, slowest answer %.1f s\n",
		len(c.all()), unknown, longest.Seconds(), slowest.Seconds())
	Expect(successful).To(BeNumerically(">", 0), "successful calls")
	return longest
}

// totalOutage prints the outages and returns how long they were in total.
func (c *caller) totalOutage() time.Duration {
	GinkgoHelper()
	c.longestOutage()
	var sum time.Duration
	for _, one := range c.outages() {
		sum += one.lasted()
	}
	return sum
}

// expectShortOutages checks the outages during a number of planned moves.
func (c *caller) expectShortOutages(moves int64) {
	GinkgoHelper()
	longest, sum := c.longestOutage(), c.totalOutage()
	fmt.Printf("  %d moves, outages of %.1f s in total\n", moves, sum.Seconds())
	Expect(moves).To(BeNumerically(">", 0))
	Expect(longest).To(BeNumerically("<", maxPlannedOutage))
	Expect(sum).To(BeNumerically("<", time.Duration(moves)*maxPlannedOutage))
}
