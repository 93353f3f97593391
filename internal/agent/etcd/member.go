package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/kube"
)

const (
	manifestPath = "/etc/kubernetes/manifests/etcd.yaml"
	// defaultURL is where kubeadm makes etcd listen for clients on the host itself.
	defaultURL = "https://127.0.0.1:2379"
	// defaultData is kubeadm's folder of etcd's data.
	defaultData = "/var/lib/etcd"

	authorityPath   = "/etc/kubernetes/pki/etcd/ca.crt"
	certificatePath = "/etc/kubernetes/pki/etcd/healthcheck-client.crt"
	keyPath         = "/etc/kubernetes/pki/etcd/healthcheck-client.key"
)

// Options say how a member is reached.
type Options struct {
	// Endpoint is the URL at which the member serves clients.
	Endpoint string
	// TLS has the certificate authority of the members and one client certificate.
	TLS *tls.Config
	// Dial opens connections; nil means net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Member is the member that kubeadm set up on a host.
type Member struct {
	Options

	// Data is the folder of its data, a path on the host.
	Data string
	// Name is its name, and PeerURL the first URL that it tells other members; both are blank
	// if the manifest does not say.
	Name, PeerURL string
}

// Local returns the member of the host whose file system begins at root. found is false if
// the host has none, because it is a worker or etcd runs elsewhere.
func Local(root string) (member Member, found bool, err error) {
	data, err := os.ReadFile(filepath.Join(root, manifestPath))
	if errors.Is(err, fs.ErrNotExist) {
		return Member{}, false, nil
	}
	if err != nil {
		return Member{}, false, fmt.Errorf("reading the manifest of etcd: %w", err)
	}
	member = Member{Data: defaultData}
	member.Endpoint = defaultURL
	flags, err := commandOf(data)
	if err != nil {
		return Member{}, false, fmt.Errorf("reading %s: %w", manifestPath, err)
	}
	for _, flag := range flags {
		if value, ok := strings.CutPrefix(flag, "--data-dir="); ok && filepath.IsAbs(value) {
			member.Data = filepath.Clean(value)
		}
		if value, ok := strings.CutPrefix(flag, "--listen-client-urls="); ok {
			member.Endpoint = nearest(value)
		}
		if value, ok := strings.CutPrefix(flag, "--name="); ok {
			member.Name = value
		}
		if value, ok := strings.CutPrefix(flag, "--initial-advertise-peer-urls="); ok {
			member.PeerURL, _, _ = strings.Cut(value, ",")
		}
	}
	member.TLS, err = credentials(root)
	return member, err == nil, err
}

// commandOf returns the words of the commands in the manifest of a static Pod.
func commandOf(manifest []byte) ([]string, error) {
	var pod struct {
		Spec struct {
			Containers []struct {
				Command []string `yaml:"command"`
				Args    []string `yaml:"args"`
			} `yaml:"containers"`
		} `yaml:"spec"`
	}
	if err := kube.Decode(manifest, &pod); err != nil {
		return nil, err
	}
	var words []string
	for _, container := range pod.Spec.Containers {
		words = append(words, slices.Concat(container.Command, container.Args)...)
	}
	return words, nil
}

// nearest returns the URL of the host itself, or the first one.
func nearest(urls string) string {
	all := strings.Split(urls, ",")
	for _, one := range all {
		if parsed, err := url.Parse(one); err == nil && parsed.Hostname() == "127.0.0.1" {
			return one
		}
	}
	return all[0]
}

// credentials reads the certificate for health checks. It is read again for each use,
// because an upgrade renews it.
func credentials(root string) (*tls.Config, error) {
	authority, err := os.ReadFile(filepath.Join(root, authorityPath))
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority of etcd: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("reading the certificate authority of etcd: there is no certificate in %s", authorityPath)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(root, certificatePath), filepath.Join(root, keyPath))
	if err != nil {
		return nil, fmt.Errorf("reading the client certificate of etcd: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}}, nil
}
