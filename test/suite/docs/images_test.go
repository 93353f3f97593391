package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubevip"
)

// The list of images of a release names the versions that this provider is tested with.
func TestImagesOfReleases(t *testing.T) {
	g := NewWithT(t)
	list := regexp.MustCompile(`(?m)^[^#\n].*`).FindAllString(read(t, "hack/release/images.txt"), -1)

	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", "sigs.k8s.io/cluster-api")
	cmd.Dir = filepath.Join(root, "test", "tools", "cluster-api")
	out, err := cmd.Output()
	g.Expect(err).NotTo(HaveOccurred())
	clusterAPI, folder, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	source, err := os.ReadFile(filepath.Join(folder, "cmd", "clusterctl", "client", "config", "cert_manager_client.go"))
	g.Expect(err).NotTo(HaveOccurred())
	certManager := regexp.MustCompile(`CertManagerDefaultVersion = "([^"]+)"`).FindStringSubmatch(string(source))
	g.Expect(certManager).To(HaveLen(2))

	want := []string{"${IMAGE}", kubevip.DefaultImage}
	for _, name := range []string{"cluster-api-controller", "kubeadm-bootstrap-controller", "kubeadm-control-plane-controller"} {
		want = append(want, "registry.k8s.io/cluster-api/"+name+":"+clusterAPI)
	}
	for _, name := range []string{"cainjector", "controller", "webhook"} {
		want = append(want, "quay.io/jetstack/cert-manager-"+name+":"+certManager[1])
	}
	g.Expect(list).To(Equal(want))
}
