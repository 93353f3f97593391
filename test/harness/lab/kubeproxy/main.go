// Command kubeproxy wraps kube-proxy in the lab's image. kube-proxy sets nf_conntrack_max, which
// cannot be written from within a network namespace, and exits with an error. The setting is in a
// ConfigMap that kubeadm creates; changing it here keeps the templates of users unchanged.
package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"sigs.k8s.io/yaml"
)

const (
	program = "/kube-proxy"
	changed = "/kube-proxy.conf"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

// run changes the configuration and replaces this process by kube-proxy.
func run(args []string) error {
	for i, arg := range args {
		file, found := strings.CutPrefix(arg, "--config=")
		if !found {
			continue
		}
		config, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading the configuration of kube-proxy: %w", err)
		}
		if config, err = keepConntrackMax(config); err != nil {
			return fmt.Errorf("changing the configuration of kube-proxy: %w", err)
		}
		if err := os.WriteFile(changed, config, 0o600); err != nil {
			return fmt.Errorf("writing the configuration of kube-proxy: %w", err)
		}
		args[i] = "--config=" + changed
	}
	return syscall.Exec(program, append([]string{program}, args...), os.Environ())
}

// keepConntrackMax returns a configuration that does not set nf_conntrack_max.
func keepConntrackMax(config []byte) ([]byte, error) {
	var fields map[string]any
	if err := yaml.Unmarshal(config, &fields); err != nil {
		return nil, err
	}
	conntrack, ok := fields["conntrack"].(map[string]any)
	if !ok {
		conntrack = map[string]any{}
	}
	conntrack["maxPerCore"] = 0
	fields["conntrack"] = conntrack
	return yaml.Marshal(fields)
}
