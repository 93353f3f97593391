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

// manifests are where the static pods of kubeadm and RKE2 say how their API
// servers listen. That of k3s is no pod.
func manifests() []string {
	return []string{"/etc/kubernetes/manifests/kube-apiserver.yaml", "/var/lib/rancher/rke2/agent/pod-manifests/kube-apiserver.yaml"}
}

// own is where the API server of this host listens: the address it advertises,
// if the host still has it, else the host's first. port is the endpoint's, which
// is that of all its API servers, for one that says nothing.
func (p *Prober) own(port string) (target string, err error) {
	advertised, secure, err := p.listening()
	if err != nil {
		return "", err
	}
	if secure != "" {
		port = secure
	}
	addresses := p.o.Own()
	switch {
	case advertised != "" && (len(addresses) == 0 || slices.Contains(addresses, advertised)):
		return net.JoinHostPort(advertised, port), nil
	case len(addresses) > 0:
		return net.JoinHostPort(addresses[0], port), nil
	}
	return "", errors.New("this host has no address to reach its API server at")
}

// listening reads the flags of the API server's manifest, if there is one.
func (p *Prober) listening() (address, port string, err error) {
	data, path, err := p.first(manifests())
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

// canonical is an address as the host's own are written.
func canonical(address string) string {
	if ip := net.ParseIP(address); ip != nil {
		return ip.String()
	}
	return address
}
