package tunnels

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/bare"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
)

const (
	// pods is the number of Pods that are listed.
	pods = 500
	// warmUp is how many lists are not counted: the first ones make connections and rights.
	warmUp = 5
	// settled bounds the time until the first proxied list succeeds.
	settled = 2 * time.Minute
)

// lists measures what kubectl get pods requests, through the authentication proxy and a tunnel, and without both.
func (m *measurement) lists(ctx context.Context) (err error) {
	options := embedded.Options{Checkout: m.Checkout, Manager: m.Manager, Alone: true, OneVersion: true, Progress: m.Progress}
	management, err := embedded.Start(ctx, options)
	if err != nil {
		return fmt.Errorf("starting a management cluster: %w", err)
	}
	defer func() { err = errors.Join(err, management.Stop()) }()
	child, err := embedded.Start(ctx, options)
	if err != nil {
		return fmt.Errorf("starting a workload cluster: %w", err)
	}
	defer func() { err = errors.Join(err, child.Stop()) }()
	m.Progress.Say("Creating %d Pods", pods)
	if err := fill(ctx, child); err != nil {
		return err
	}
	c, err := newChain(ctx, management, child)
	if err != nil {
		return err
	}
	defer c.close()
	m.Progress.Say("Listing Pods through the proxy and without it")
	if err := c.settle(ctx); err != nil {
		return err
	}
	var proxied, plain []time.Duration
	bytes := 0
	for end := time.Now().Add(m.Rest / listShare); len(proxied) < 2*warmUp || time.Now().Before(end); {
		for _, way := range []struct {
			as   *user
			took *[]time.Duration
		}{{c.proxied, &proxied}, {c.direct, &plain}} {
			began := time.Now()
			n, err := way.as.list(ctx)
			if err != nil {
				return err
			}
			*way.took, bytes = append(*way.took, time.Since(began)), n
		}
	}
	proxied, plain = proxied[warmUp:], plain[warmUp:]
	for _, q := range []struct {
		name  string
		share float64
	}{{"median", 0.5}, {"99th percentile", 0.99}} {
		p, d := measure.Quantile(proxied, q.share), measure.Quantile(plain, q.share)
		m.row(table.Row{
			Figure: fmt.Sprintf("kubectl get of %d Pods through the proxy, %s; bare: without it", pods, q.name),
			Value:  table.Duration(p), Bare: table.Duration(d), Ratio: table.Ratio(float64(p), float64(d)),
		})
	}
	m.note("The request is that of kubectl get, with an answer of %s, repeated %s times in turn with the same to the API server itself, over a connection that is kept. "+
		"The proxy authenticates and authorizes the user at a management cluster, and connects through a tunnel to the API server of another cluster, where the user is impersonated. "+
		"Proxy, tunnel and client are one process.", table.KiB(float64(bytes)), table.Count(len(proxied)))
	return nil
}

// fill creates Pods that nobody runs.
func fill(ctx context.Context, cluster *embedded.Cluster) error {
	admin, err := client.New(cluster.Config, client.Options{})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return bare.Each(ctx, pods, atOnce, func(ctx context.Context, i int) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("pod-%d", i), Labels: map[string]string{"app": "bench"},
		}}
		pod.Spec.Containers = []corev1.Container{{
			Name: "main", Image: "registry.example/app:v1", Args: []string{"--verbose"}, Env: []corev1.EnvVar{{Name: "SHOP", Value: pod.Name}},
		}}
		if err := admin.Create(ctx, pod); err != nil {
			return fmt.Errorf("creating a Pod: %w", err)
		}
		return nil
	})
}

// user lists Pods with a credential.
type user struct {
	http *http.Client
	// server is the URL of an API server.
	server, token string
}

// list requests what kubectl get pods does. It returns the size of the answer.
func (u *user) list(ctx context.Context) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.server+"/api/v1/namespaces/default/pods?limit=500", http.NoBody)
	if err != nil {
		return 0, fmt.Errorf("making a request: %w", err)
	}
	request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json")
	if u.token != "" {
		request.Header.Set("Authorization", "Bearer "+u.token)
	}
	response, err := u.http.Do(request)
	if err != nil {
		return 0, fmt.Errorf("listing Pods: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	if err != nil {
		return 0, fmt.Errorf("listing Pods: %w", err)
	}
	return len(body), nil
}
