package probe

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// manifests are the static Pods of the API servers of kubeadm and RKE2. The API
// server of k3s is not a Pod.
func manifests() []string {
	return []string{"/etc/kubernetes/manifests/kube-apiserver.yaml", "/var/lib/rancher/rke2/agent/pod-manifests/kube-apiserver.yaml"}
}

// apiServerAddress returns the host:port of this host's API server. The address
// is the advertised one if the host still has it, otherwise the host's preferred
// one. port is the endpoint's; it is used if the manifest names none.
func (p *Prober) apiServerAddress(port string) (target string, err error) {
	advertised, secure, err := p.readManifest()
	if err != nil {
		return "", err
	}
	if secure != "" {
		port = secure
	}
	addresses := p.o.LocalAddresses()
	switch {
	case advertised != "" && (len(addresses) == 0 || slices.Contains(addresses, advertised)):
		return net.JoinHostPort(advertised, port), nil
	case len(addresses) > 0:
		return net.JoinHostPort(addresses[0], port), nil
	}
	return "", errors.New("this host has no address to reach its API server at")
}

// readManifest returns the flags of the API server's manifest, or "" if there is
// no manifest.
func (p *Prober) readManifest() (address, port string, err error) {
	data, path, err := p.readFirst(manifests())
	if errors.Is(err, os.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("reading how the API server listens: %w", err)
	}
	var pod struct {
		Spec struct {
			Containers []struct {
				Command []string `yaml:"command"`
				Args    []string `yaml:"args"`
			} `yaml:"containers"`
		} `yaml:"spec"`
	}
	if err := yaml.Unmarshal(data, &pod); err != nil {
		return "", "", fmt.Errorf("parsing %s: %w", path, err)
	}
	for _, container := range pod.Spec.Containers {
		for _, flag := range slices.Concat(container.Command, container.Args) {
			if value, ok := strings.CutPrefix(flag, "--advertise-address="); ok {
				address = canonical(value)
			}
			if value, ok := strings.CutPrefix(flag, "--secure-port="); ok {
				port = value
			}
		}
	}
	return address, port, nil
}

// canonical returns an IP address in the form of LocalAddresses.
func canonical(address string) string {
	if ip := net.ParseIP(address); ip != nil {
		return ip.String()
	}
	return address
}
