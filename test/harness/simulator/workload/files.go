package workload

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/certs"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/objects"
)

// Paths of files that kubeadm reads and writes.
const (
	folder      = "/etc/kubernetes/"
	pkiFolder   = folder + "pki/"
	kubeletConf = folder + "kubelet.conf"
	sentinel    = bootstrapdata.SentinelPath
)

// folders returns the folders that a reset removes.
func folders() []string {
	return []string{folder, "/var/lib/kubelet", "/var/lib/etcd", "/run/kubeadm", "/run/cluster-api"}
}

// write replaces a file below a host's root as a whole, as the agent expects.
func write(root, name string, content []byte) error {
	path := filepath.Join(root, filepath.Clean("/"+name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// writeFiles writes the files of bootstrap data. Owners and modes are ignored, because the
// simulation runs as one user.
func writeFiles(root string, files []bootstrapdata.File) error {
	for _, file := range files {
		content := file.Content
		if file.Append {
			former, err := os.ReadFile(filepath.Join(root, filepath.Clean("/"+file.Path)))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("appending to %s: %w", file.Path, err)
			}
			content = append(former, content...)
		}
		if err := write(root, file.Path, content); err != nil {
			return err
		}
	}
	return nil
}

func removeFiles(root string) error {
	var failures []error
	for _, name := range folders() {
		failures = append(failures, os.RemoveAll(filepath.Join(root, name)))
	}
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("resetting: %w", err)
	}
	return nil
}

// writeControlPlane writes the kubeconfigs and static Pod manifests of a control-plane host.
// endpoint is the URL of the control plane endpoint. Controllers and, since Kubernetes 1.36, the
// kubelet use the host's own API server instead.
func (c *cluster) writeControlPlane(h *host, endpoint string, first bool) error {
	own := "https://" + h.local.api.String()
	users := []kubeconfigUser{
		{"admin.conf", endpoint, "kubernetes-admin", "kubeadm:cluster-admins"},
		{"controller-manager.conf", own, "system:kube-controller-manager", ""},
		{"scheduler.conf", own, "system:kube-scheduler", ""},
		kubelet(h, own),
	}
	if first {
		users = append(users, kubeconfigUser{"super-admin.conf", endpoint, "kubernetes-super-admin", "system:masters"})
	}
	if err := c.writeUsers(h, users); err != nil {
		return err
	}
	if err := h.writeManifests(h.kubelet.Version); err != nil {
		return err
	}
	return write(h.machine.Root, "/var/lib/etcd/member/snap/db", nil)
}

// writeManifests writes the static Pod manifests of a control-plane host.
func (h *host) writeManifests(version string) error {
	for _, component := range objects.Components() {
		command := []string{component}
		if component == objects.APIServer {
			command = append(command, "--advertise-address="+h.local.api.Addr().String(), fmt.Sprintf("--secure-port=%d", h.local.api.Port()))
		}
		manifest, err := yaml.Marshal(&corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: component},
			Spec:       corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: component, Image: objects.Image(component, version), Command: command}}},
		})
		if err != nil {
			return fmt.Errorf("writing the manifest of %s: %w", component, err)
		}
		if err := write(h.machine.Root, folder+"manifests/"+component+".yaml", manifest); err != nil {
			return err
		}
	}
	return nil
}

// writeWorker writes the CA certificate and the kubelet's kubeconfig. server is the URL that the
// kubelet uses.
func (c *cluster) writeWorker(h *host, server string) error {
	if err := write(h.machine.Root, pkiFolder+"ca.crt", bytes.Clone(c.authority.Certificate)); err != nil {
		return err
	}
	return c.writeUsers(h, []kubeconfigUser{kubelet(h, server)})
}

// kubeconfigUser describes a kubeconfig file.
type kubeconfigUser struct{ file, server, name, group string }

func kubelet(h *host, server string) kubeconfigUser {
	return kubeconfigUser{"kubelet.conf", server, "system:node:" + h.kubelet.Name, "system:nodes"}
}

func (c *cluster) writeUsers(h *host, users []kubeconfigUser) error {
	now := c.all.o.Clock.Now()
	for _, one := range users {
		text, err := c.kubeconfig(one, now)
		if err != nil {
			return err
		}
		if err := write(h.machine.Root, folder+one.file, text); err != nil {
			return err
		}
	}
	return write(h.machine.Root, "/var/lib/kubelet/config.yaml", []byte("kind: KubeletConfiguration\n"))
}

func (c *cluster) kubeconfig(one kubeconfigUser, now time.Time) ([]byte, error) {
	request := certs.Request{Name: one.name, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if one.group != "" {
		request.Groups = []string{one.group}
	}
	pair, err := c.authority.Issue(request, now)
	if err != nil {
		return nil, err
	}
	return certs.Kubeconfig(one.server, c.authority.Certificate, one.name, pair)
}
