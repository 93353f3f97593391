package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/apiserver"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/kube"
)

const (
	// Kubeconfig is the kubeconfig of a kubelet that kubeadm has set up.
	Kubeconfig = "/etc/kubernetes/kubelet.conf"
	// KubeletConfig is the configuration of that kubelet.
	KubeletConfig = "/var/lib/kubelet/config.yaml"

	// userPrefix is the prefix of a kubelet's user name.
	userPrefix = "system:node:"
	// serverName is a name that kubeadm puts into the certificate of each API server.
	serverName = "kubernetes"
	// defaultHealthPort is where a kubelet answers on loopback if its configuration names no
	// other port.
	defaultHealthPort = 10248
	healthTimeout     = 10 * time.Second
	maxHealthAnswer   = 4 << 10
)

// Client asks the cluster. Each call reads the kubeconfig again, because kubelets renew
// their certificates.
type Client struct {
	// Root replaces "/".
	Root string
	// Dial opens connections; nil means net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// access returns the kubelet's access to the API server that its kubeconfig names.
func (c Client) access() (access kube.Access, node string, err error) {
	access, err = kube.Load(filepath.Join(c.Root, Kubeconfig))
	if err != nil {
		return kube.Access{}, "", err
	}
	access.Dial = c.Dial
	node, hasPrefix := strings.CutPrefix(access.User(), userPrefix)
	if !hasPrefix || node == "" {
		return kube.Access{}, "", fmt.Errorf("using %s: its certificate is for %q, not for a node", Kubeconfig, access.User())
	}
	return access, node, nil
}

// ServerVersion returns the version of the API server that the kubelet uses, which may be
// another host's.
func (c Client) ServerVersion(ctx context.Context) (string, error) {
	access, _, err := c.access()
	if err != nil {
		return "", err
	}
	return version(ctx, access)
}

// LocalServer returns the version of this host's own API server, or an error unless that
// is ready.
func (c Client) LocalServer(ctx context.Context) (string, error) {
	access, _, err := c.access()
	if err != nil {
		return "", err
	}
	if access, err = apiserver.Local(c.Root, access); err != nil {
		return "", err
	}
	access.TLS.ServerName = serverName
	if err := access.Get(ctx, nil, "readyz"); err != nil {
		return "", fmt.Errorf("asking the API server of this host whether it is ready: %w", err)
	}
	return version(ctx, access)
}

// Ready returns an error unless the API server of another host, at an address host:port, is
// ready. Its certificate has to cover name.
func (c Client) Ready(ctx context.Context, address, name string) error {
	access, _, err := c.access()
	if err != nil {
		return err
	}
	access.Server = &url.URL{Scheme: "https", Host: address}
	access.TLS = access.TLS.Clone()
	access.TLS.ServerName = name
	if err := access.Get(ctx, nil, "readyz"); err != nil {
		return fmt.Errorf("asking the API server at %s whether it is ready: %w", address, err)
	}
	return nil
}

func version(ctx context.Context, access kube.Access) (string, error) {
	var info struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := access.Get(ctx, &info, "version"); err != nil {
		return "", fmt.Errorf("asking the API server for its version: %w", err)
	}
	return info.GitVersion, nil
}

// KubeletHealthy returns nil if the kubelet says that it is healthy, and if it is
// configured not to say it.
func (c Client) KubeletHealthy(ctx context.Context) error {
	address, err := c.healthAddress()
	if err != nil || address == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	transport := &http.Transport{DialContext: c.Dial, DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/healthz", http.NoBody)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("asking the kubelet whether it is healthy: %w: see journalctl --unit kubelet", err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxHealthAnswer))
	if err != nil {
		return fmt.Errorf("asking the kubelet whether it is healthy: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the kubelet is not healthy: %.256s", strings.TrimSpace(string(text)))
	}
	return nil
}

// healthAddress returns where the kubelet answers, or "" if nowhere.
func (c Client) healthAddress() (string, error) {
	data, err := os.ReadFile(filepath.Join(c.Root, KubeletConfig))
	if err != nil {
		return "", fmt.Errorf("reading the configuration of the kubelet: %w", err)
	}
	var config struct {
		Address string `yaml:"healthzBindAddress"`
		Port    *int   `yaml:"healthzPort"`
	}
	if err := kube.Decode(data, &config); err != nil {
		return "", fmt.Errorf("reading %s: %w", KubeletConfig, err)
	}
	port := defaultHealthPort
	if config.Port != nil {
		port = *config.Port
	}
	if port <= 0 {
		return "", nil
	}
	if ip := net.ParseIP(config.Address); ip == nil || ip.IsUnspecified() {
		config.Address = "127.0.0.1"
	}
	return net.JoinHostPort(config.Address, strconv.Itoa(port)), nil
}
