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

	"github.com/capi-elemental/cluster-api-provider-elemental/test/simulator/workload/certs"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/simulator/workload/kubeadm"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/simulator/workload/objects"
)

const (
	// retryEvery is how often kubeadm looks for a cluster.
	retryEvery = 5 * time.Second
	// requestTimeout bounds a request of a join, maxAnswer what is read of the answer, in bytes.
	requestTimeout = 10 * time.Second
	maxAnswer      = 4 << 20
)

const configPath = "/api/v1/namespaces/kube-system/configmaps/" + objects.ConfigName

// discovered is a cluster as a joining host finds it.
type discovered struct {
	// server is the URL that cluster-info names, hash that of the cluster's authority.
	server, hash  string
	configuration kubeadm.Cluster
}

// discover finds the cluster through its endpoint, again and again until the time is up.
func (c *Clusters) discover(ctx context.Context, h *host, j *kubeadm.Join) (*discovered, error) {
	giveUp := c.o.Clock.NewTimer(c.o.JoinTimeout)
	defer giveUp.Stop()
	for {
		at, err := c.find(ctx, h, j)
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

// find asks once: whoever answers at the endpoint for the way to the cluster, which is believed if the authority
// is the expected one, and then the cluster for its configuration.
func (c *Clusters) find(ctx context.Context, h *host, j *kubeadm.Join) (*discovered, error) {
	info := &corev1.ConfigMap{}
	// What is read is believed only if it names the authority that was pinned.
	anybody := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
	if err := h.get(ctx, "https://"+j.Endpoint+infoPath, "", anybody, info); err != nil {
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

// get reads an object, from the host's own address to one of the loopback.
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

// dial connects as the host does.
func (h *host) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if to, _ := h.wishes(); !to.network || !to.power {
		return nil, errors.New("the host has no network")
	}
	target, err := netip.ParseAddrPort(address)
	if err != nil || !target.Addr().IsLoopback() {
		return nil, fmt.Errorf("connecting to %s: %w", address, errForeign)
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: h.machine.Address.AsSlice()}}
	return dialer.DialContext(ctx, network, address)
}
