package image

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

// kubeadmVersion returns the version of the kubeadm in a folder.
func kubeadmVersion(ctx context.Context, tools string) (string, error) {
	version, err := shell.Run(ctx, filepath.Join(tools, "kubeadm"), "version", "--output", "short")
	if err != nil {
		return "", fmt.Errorf("asking kubeadm for its version: %w", err)
	}
	return version, nil
}

// imageNames returns the images that kubeadm uses, by the last part of their name, such as
// "pause".
func imageNames(ctx context.Context, k kubernetes) (map[string]string, error) {
	out, err := shell.Run(ctx, filepath.Join(k.tools, "kubeadm"), "config", "images", "list", "--kubernetes-version", k.version)
	if err != nil {
		return nil, fmt.Errorf("asking kubeadm for its images: %w", err)
	}
	return parseImageNames(out), nil
}

func parseImageNames(list string) map[string]string {
	names := map[string]string{}
	for name := range strings.FieldsSeq(list) {
		repository, _, _ := strings.Cut(path.Base(name), ":")
		names[repository] = name
	}
	return names
}

// workloads returns the images of Kubernetes and kube-vip. names has the image names of kubeadm
// and the manager, own the programs of the lab; tools is the folder of all other programs.
func workloads(names, own map[string]string, tools, iptables string) ([]Workload, error) {
	var all []Workload
	for _, repository := range sortedKeys(names) {
		w := Workload{Name: names[repository]}
		switch repository {
		case "pause":
			w.Entrypoint = []string{"/pause"}
			w.Files = map[string]string{"/pause": own["pause"]}
		case "coredns", "kube-vip":
			w.Entrypoint = []string{"/" + repository}
			w.Files = map[string]string{"/" + repository: filepath.Join(tools, repository)}
		case "kube-proxy":
			w.Base = iptables
			w.Files = map[string]string{
				"/kube-proxy":               filepath.Join(tools, repository),
				"/usr/local/bin/kube-proxy": own["kubeproxy"],
			}
		case "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler":
			w.Files = map[string]string{"/usr/local/bin/" + repository: filepath.Join(tools, repository)}
		default:
			return nil, fmt.Errorf("kubeadm asks for image %s, which the lab can't make", names[repository])
		}
		all = append(all, w)
	}
	return all, nil
}
