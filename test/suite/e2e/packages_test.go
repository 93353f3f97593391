//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/survey"
)

const (
	// packagedHost is the number of the host of this file, above those of all other hosts.
	packagedHost = 61
	// packagesNamespace has its ElementalHost.
	packagesNamespace = "packages"
	// registrationName is the registration's.
	registrationName = "berlin"
	// transferFolder is where files are put on the host, on its disk.
	transferFolder = "/var/tmp/transfer"
)

var _ = Describe("The agent's package for dpkg", func() {
	It("is installed, enrols the host, is upgraded, and is purged without a trace", Label("packages"), func(ctx context.Context) {
		var (
			p      packaged
			before survey.Survey
		)
		step("packages: built", func() { p.first, p.second = buildPackage(ctx, "v0.1.1"), buildPackage(ctx, "v0.1.2") })
		step("packages: bare host", func() {
			var err error
			p.box, err = lab.NewBare(hosts).Host(ctx, packagedHost)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(p.remove)
			before, err = survey.Take(ctx, p.box)
			Expect(err).NotTo(HaveOccurred())
		})
		step("packages: installed without a configuration", func() {
			p.install(ctx, p.first)
			Expect(p.show(ctx, "Version")).To(Equal("0.1.1"))
			Expect(strings.TrimSpace(shell(ctx, p.box, "systemctl is-enabled elemental-agent"))).To(Equal("enabled"))
			shell(ctx, p.box, "! systemctl is-active --quiet elemental-agent")
		})
		step("packages: enrolled", func() {
			p.configure(ctx)
			p.expectAgent(ctx, "v0.1.1")
		})
		enrolled := p.host(ctx)
		since := meta.FindStatusCondition(enrolled.Status.Conditions, infrav1.ConnectedCondition).LastTransitionTime
		step("packages: upgraded", func() {
			p.install(ctx, p.second)
			p.expectAgent(ctx, "v0.1.2")
			host := p.host(ctx)
			Expect(host.UID).To(Equal(enrolled.UID))
			Expect(host.Status.KeyFingerprint).To(Equal(enrolled.Status.KeyFingerprint))
			Expect(meta.FindStatusCondition(host.Status.Conditions, infrav1.ConnectedCondition).LastTransitionTime).To(Equal(since),
				"the host was connected all the time")
		})
		step("packages: removed, and installed again as the same host", func() {
			shell(ctx, p.box, "dpkg --remove elemental-agent && ! systemctl is-active --quiet elemental-agent && ! command -v elemental-agent")
			p.install(ctx, p.second)
			Eventually(func(g Gomega) {
				shell(ctx, p.box, "systemctl is-active elemental-agent")
				host := p.host(ctx)
				g.Expect(host.UID).To(Equal(enrolled.UID))
				g.Expect(meta.IsStatusConditionTrue(host.Status.Conditions, infrav1.ConnectedCondition)).To(BeTrue())
			}).WithTimeout(2 * time.Minute).Should(Succeed())
		})
		step("packages: purged without a trace", func() {
			Expect(management.Delete(ctx, p.host(ctx))).To(Succeed())
			shell(ctx, p.box, "dpkg --purge elemental-agent")
			// The survey leaves the agent's own state out.
			shell(ctx, p.box, "! ls -d /var/lib/elemental /etc/elemental /run/elemental-agent 2>/dev/null")
			after, err := survey.Take(ctx, p.box)
			Expect(err).NotTo(HaveOccurred())
			Expect(strings.Join(foreignToDpkg(survey.Diff(before, after)), "\n")).To(BeEmpty())
		})
	}, SpecTimeout(20*time.Minute))
})

// packaged is a host whose agent comes from packages.
type packaged struct {
	box *engine.Host
	// first and second are the files of two versions of the package.
	first, second string
}

// buildPackage builds the package of a version of the agent as a release has it.
func buildPackage(ctx context.Context, version string) string {
	GinkgoHelper()
	root, err := filepath.Abs(checkout)
	Expect(err).NotTo(HaveOccurred())
	folder := GinkgoT().TempDir()
	build := exec.CommandContext(ctx, "go", "-C", filepath.Join(root, "hack", "release"), "run", ".", "packages", "-root", root, "-version", version, folder)
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	found, err := filepath.Glob(filepath.Join(folder, "*.deb"))
	Expect(err).NotTo(HaveOccurred())
	Expect(found).To(HaveLen(1))
	return found[0]
}

// install installs a package on the host.
func (p *packaged) install(ctx context.Context, file string) {
	GinkgoHelper()
	installPackage(ctx, p.box, file)
}

// installPackage installs a package, as root on the host would.
func installPackage(ctx context.Context, box *engine.Host, file string) {
	GinkgoHelper()
	Expect(box.Copy(ctx, file, transferFolder)).To(Succeed())
	shell(ctx, box, "dpkg --install "+transferFolder+"/"+filepath.Base(file)+" && rm --recursive "+transferFolder)
}

// show returns a field of the installed package.
func (p *packaged) show(ctx context.Context, field string) string {
	GinkgoHelper()
	return shell(ctx, p.box, "dpkg-query --show --showformat='${"+field+"}' elemental-agent")
}

// configure makes a registration, and puts its configuration onto the host as docs/install.md says.
func (p *packaged) configure(ctx context.Context) {
	GinkgoHelper()
	Expect(management.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: packagesNamespace}})).To(Succeed())
	Expect(management.Create(ctx, &infrav1.ElementalRegistration{
		ObjectMeta: metav1.ObjectMeta{Namespace: packagesNamespace, Name: registrationName},
		Spec:       infrav1.ElementalRegistrationSpec{Approval: infrav1.ApprovalAutomatic},
	})).To(Succeed())
	secret, key := &corev1.Secret{}, client.ObjectKey{Namespace: packagesNamespace, Name: registrationName + "-token"}
	Eventually(func(g Gomega) {
		g.Expect(management.Get(ctx, key, secret)).To(Succeed())
		g.Expect(secret.Data).To(HaveKey("config.yaml"))
	}).WithTimeout(time.Minute).Should(Succeed())
	config := filepath.Join(GinkgoT().TempDir(), "config.yaml")
	Expect(os.WriteFile(config, secret.Data["config.yaml"], 0o600)).To(Succeed())
	Expect(p.box.Copy(ctx, config, transferFolder)).To(Succeed())
	shell(ctx, p.box, "install -D -m 0600 "+transferFolder+"/config.yaml /etc/elemental/agent/config.yaml && rm --recursive "+transferFolder+" && systemctl restart elemental-agent")
}

// host returns the ElementalHost.
func (p *packaged) host(ctx context.Context) *infrav1.ElementalHost {
	GinkgoHelper()
	list := &infrav1.ElementalHostList{}
	Expect(management.List(ctx, list, client.InNamespace(packagesNamespace))).To(Succeed())
	Expect(list.Items).To(HaveLen(1))
	return &list.Items[0]
}

// expectAgent waits until the host is connected by an agent of a version.
func (p *packaged) expectAgent(ctx context.Context, version string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		list := &infrav1.ElementalHostList{}
		g.Expect(management.List(ctx, list, client.InNamespace(packagesNamespace))).To(Succeed())
		g.Expect(list.Items).To(HaveLen(1))
		host := &list.Items[0]
		g.Expect(host.Status.Agent).NotTo(BeNil())
		g.Expect(host.Status.Agent.Version).To(Equal(version))
		g.Expect(meta.IsStatusConditionTrue(host.Status.Conditions, infrav1.ConnectedCondition)).To(BeTrue(), "%+v", host.Status.Conditions)
	}).WithTimeout(2 * time.Minute).Should(Succeed())
}

// foreignToDpkg leaves out what dpkg and the helper of systemd's units keep of each package that was
// ever installed: databases, their backups and a log.
func foreignToDpkg(lines []string) []string {
	var left []string
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) > 2 && fields[0] == "files" {
			name := fields[2]
			if strings.HasPrefix(name, "/var/lib/dpkg/") || name == "/var/lib/dpkg" || name == "/var/log/dpkg.log" {
				continue
			}
		}
		left = append(left, line)
	}
	return left
}

// remove removes the namespace and the host.
func (p *packaged) remove(ctx context.Context) {
	GinkgoHelper()
	if keepsLab() && CurrentSpecReport().Failed() {
		return
	}
	Expect(client.IgnoreNotFound(management.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: packagesNamespace}}))).To(Succeed())
	Expect(p.box.Remove(ctx)).To(Succeed())
}
