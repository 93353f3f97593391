package apiserver

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/kube"
)

// Distribution is what set up the API server.
type Distribution string

// Distributions.
const (
	Kubeadm Distribution = "kubeadm"
	RKE2    Distribution = "RKE2"
	K3s     Distribution = "k3s"
)

// DefaultPort is the port of an API server that no flag gives another one.
const DefaultPort = "6443"

// Server is the API server of this host.
type Server struct {
	Distribution Distribution
	// Advertised is the IP address at which others reach it, and Port its port; both are
	// blank if the manifest does not say.
	Advertised, Port string
}

// Find returns the API server of the host whose file system begins at root. found is false
// on a host that has none. It returns an error if there is a manifest that cannot be read.
func Find(root string) (server Server, found bool, err error) {
	for _, place := range []struct {
		distribution Distribution
		manifest     string
		// folder exists on hosts that have the API server, also without a manifest.
		folder string
	}{
		{Kubeadm, "/etc/kubernetes/manifests/kube-apiserver.yaml", ""},
		{RKE2, "/var/lib/rancher/rke2/agent/pod-manifests/kube-apiserver.yaml", "/var/lib/rancher/rke2/server"},
		{K3s, "", "/var/lib/rancher/k3s/server"},
	} {
		if place.manifest != "" {
			data, err := os.ReadFile(filepath.Join(root, place.manifest))
			if err == nil {
				server, err := parse(data)
				if err != nil {
					return Server{}, false, fmt.Errorf("reading %s: %w", place.manifest, err)
				}
				server.Distribution = place.distribution
				return server, true, nil
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return Server{}, false, fmt.Errorf("reading how the API server listens: %w", err)
			}
		}
		if place.folder != "" {
			if _, err := os.Stat(filepath.Join(root, place.folder)); err == nil {
				return Server{Distribution: place.distribution}, true, nil
			}
		}
	}
	return Server{}, false, nil
}

// parse reads the flags in the manifest of a static Pod.
func parse(manifest []byte) (Server, error) {
	var pod struct {
		Spec struct {
			Containers []struct {
				Command []string `yaml:"command"`
				Args    []string `yaml:"args"`
			} `yaml:"containers"`
		} `yaml:"spec"`
	}
	if err := kube.Decode(manifest, &pod); err != nil {
		return Server{}, err
	}
	var server Server
	for _, container := range pod.Spec.Containers {
		for _, flag := range slices.Concat(container.Command, container.Args) {
			if value, ok := strings.CutPrefix(flag, "--advertise-address="); ok {
				server.Advertised = canonical(value)
			}
			if value, ok := strings.CutPrefix(flag, "--secure-port="); ok {
				server.Port = value
			}
		}
	}
	return server, nil
}

// canonical returns an IP address as platforms list it.
func canonical(address string) string {
	if ip, err := netip.ParseAddr(address); err == nil {
		return ip.Unmap().String()
	}
	return address
}

// Address returns where the API server is reached, host:port: at the advertised address if
// the host still has it, and otherwise at the first of the host's addresses. port is used
// if the server's own is unknown. Without local addresses the advertised one is taken.
func (s Server) Address(local []string, port string) (string, error) {
	if s.Port != "" {
		port = s.Port
	}
	switch {
	case s.Advertised != "" && (len(local) == 0 || slices.Contains(local, s.Advertised)):
		return net.JoinHostPort(s.Advertised, port), nil
	case len(local) > 0:
		return net.JoinHostPort(local[0], port), nil
	}
	return "", errors.New("this host has no address to reach its API server at")
}

// Local returns access to the API server of the host whose file system begins at root, with the
// credentials of access. Its certificate must be for the address: kubeadm's is.
func Local(root string, access kube.Access) (kube.Access, error) {
	server, found, err := Find(root)
	if err != nil {
		return kube.Access{}, err
	}
	if !found {
		return kube.Access{}, errors.New("there is no manifest of an API server")
	}
	address, err := server.Address(nil, DefaultPort)
	if err != nil {
		return kube.Access{}, err
	}
	access.Server = &url.URL{Scheme: "https", Host: address}
	access.TLS = access.TLS.Clone()
	access.TLS.ServerName = "" // a name in a kubeconfig would be that of the endpoint
	return access, nil
}

// Own returns the address, host:port, of the API server of the host whose file system begins
// at root and whose addresses are local; blank if the host has none or the address is unknown.
func Own(root string, local []string) string {
	server, found, err := Find(root)
	if err != nil || !found {
		return ""
	}
	address, err := server.Address(local, DefaultPort)
	if err != nil {
		return ""
	}
	return address
}
