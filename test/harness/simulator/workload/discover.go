package workload

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/certs"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/kubeadm"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/objects"
)

const (
	// retryEvery is the interval at which kubeadm retries discovery.
	retryEvery = 5 * time.Second
	// requestTimeout bounds a request of a join; maxAnswer bounds its response body in bytes.
	requestTimeout = 10 * time.Second
	// readyTimeout bounds a kubelet's look at the endpoint. On the loopback nothing takes that long.
	readyTimeout = 2 * time.Second
	maxAnswer    = 4 << 20
)

const configPath = "/api/v1/namespaces/kube-system/configmaps/" + objects.ConfigName

// discovered is the result of a joining host's discovery.
type discovered struct {
	// server is the URL in cluster-info, hash that of the cluster's CA.
	server, hash  string
	configuration kubeadm.Cluster
}

// discover repeats discoverOnce until it succeeds or the join timeout has passed.
func (c *Clusters) discover(ctx context.Context, h *host, j *kubeadm.Join) (*discovered, error) {
	giveUp := c.o.Clock.NewTimer(c.o.JoinTimeout)
	defer giveUp.Stop()
	for {
		at, err := c.discoverOnce(ctx, h, j)
		if err == nil {
			return at, nil
		}
		again := c.o.Clock.NewTimer(retryEvery)
		select {
		case <-again.C():
		case <-giveUp.C():
			again.Stop()
			return nil, fmt.Errorf("finding the cluster within %s: %w", c.o.JoinTimeout, err)
		case <-ctx.Done():
			again.Stop()
			return nil, fmt.Errorf("finding the cluster: %w", errors.Join(ctx.Err(), err))
		}
	}
}

// discoverOnce reads cluster-info from the endpoint without verifying the server, checks that the
// CA in it is one of the pinned ones, and then reads the cluster's configuration over verified
// TLS.
func (c *Clusters) discoverOnce(ctx context.Context, h *host, j *kubeadm.Join) (*discovered, error) {
	info := &corev1.ConfigMap{}
	// The pinned hash verifies the content.
	unverified := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
	if err := h.get(ctx, "https://"+j.Endpoint+infoPath, "", unverified, info); err != nil {
		return nil, err
	}
	server, authority, err := certs.ReadInfo([]byte(info.Data[objects.InfoKey]))
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(authority)
	if block == nil {
		return nil, errors.New("reading cluster-info: it has no certificate authority")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading cluster-info: %w", err)
	}
	hash := certs.Hash(certificate)
	if !slices.Contains(j.Hashes, hash) {
		return nil, errors.New("the cluster has another certificate authority than the one expected")
	}
	roots := x509.NewCertPool()
	roots.AddCert(certificate)
	stored := &corev1.ConfigMap{}
	if err := h.get(ctx, server+configPath, j.Token, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, stored); err != nil {
		return nil, err
	}
	configuration, err := kubeadm.ReadCluster([]byte(stored.Data[objects.ConfigKey]))
	if err != nil {
		return nil, err
	}
	return &discovered{server: server, hash: hash, configuration: configuration}, nil
}

// get reads an object. The connection starts at the host's own address and may only go to loopback
// addresses.
func (h *host) get(ctx context.Context, url, token string, settings *tls.Config, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: settings, DisableKeepAlives: true, DialContext: h.dial}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("asking %s: %s", url, response.Status)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(into); err != nil {
		return fmt.Errorf("asking %s: %w", url, err)
	}
	return nil
}

// dial connects from the host's address, to a loopback address or to a name that the host has an address for. It fails while
// the host has no power or network.
func (h *host) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if to, _ := h.desired(); !to.network || !to.power {
		return nil, errors.New("the host has no network")
	}
	if target, err := netip.ParseAddrPort(address); err == nil && !target.Addr().IsLoopback() {
		return nil, fmt.Errorf("connecting to %s: %w", address, errForeign)
	}
	return h.machine.Dial(ctx, network, address)
}

// isServed reports whether an API server answers a host's program at the name of an endpoint.
func (h *host) isServed(ctx context.Context, endpoint string, roots *x509.CertPool) bool {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true, DialContext: h.dial,
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+endpoint+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}
