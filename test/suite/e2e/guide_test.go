//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/guide"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/image"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/podnetwork"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/survey"
)

const (
	// checkout is the root folder of the repository.
	checkout = "../../.."
	// guideVersion is the version of the release that the guide installs.
	guideVersion = "v0.1.0"
	// firstGuideHost is the number of the first host of the guide, above those of all other hosts.
	firstGuideHost = 41
	// guideHosts is how many hosts the guide's cluster has. The first packagedHosts of them have the agent's package
	// before they enrol; the others download the agent.
	guideHosts, packagedHosts = 5, 3
)

var _ = Describe("The guide", func() {
	It("leads from boxes to a cluster", Label("guide"), func(ctx context.Context) {
		g := startWalk(ctx)
		text, err := os.ReadFile(filepath.Join(checkout, "docs", "guide.md"))
		Expect(err).NotTo(HaveOccurred())
		steps, err := guide.Steps(string(text))
		Expect(err).NotTo(HaveOccurred())
		commands := 0
		for number, s := range steps {
			step(fmt.Sprintf("guide: %d. %s", number+1, s.Title), func() { g.take(ctx, s) })
			commands += len(s.Commands())
		}
		Expect(g.replaced).To(HaveLen(len(g.replacements())), "each replacement replaces something")
		fmt.Printf("  %d commands, one of them on each of %d hosts\n", commands, len(g.boxes))
		step("guide: the agents of packages are the packages'", func() {
			for number, box := range g.boxes {
				program := strings.TrimSpace(shell(ctx, box, "readlink /proc/$(systemctl show --property MainPID --value elemental-agent)/exe"))
				wanted := "/usr/local/bin/elemental-agent"
				if number < packagedHosts {
					wanted = "/usr/bin/elemental-agent"
				}
				Expect(program).To(Equal(wanted), box.Name)
			}
		})

		step("guide: cluster deleted, hosts available and as bare as before", func() {
			g.run(ctx, "kubectl delete cluster demo --timeout 10m")
			g.expectAvailable(ctx)
			for _, box := range g.boxes {
				now, err := survey.Take(ctx, box)
				Expect(err).NotTo(HaveOccurred())
				Expect(strings.Join(survey.Diff(g.before[box.Name], now), "\n")).To(BeEmpty(), "host %s", box.Name)
			}
		})
	}, SpecTimeout(60*time.Minute))
})

// walk is a walk through the guide.
type walk struct {
	administrator

	lab   lab.Empty
	boxes []*engine.Host
	// mirror is the URL of a server of the bundles in the administrator's home.
	mirror string
	// bundle is what `bundle build` printed.
	bundle string
	// before has the states of the hosts between their enrolment and the cluster.
	before surveys
}

// startWalk makes what the guide presupposes: a management cluster without Cluster API that has
// the images, a release, bare hosts, the programs of Kubernetes in a folder, the manifest of a
// network plugin, and a server of files that hosts reach.
func startWalk(ctx context.Context) *walk {
	GinkgoHelper()
	g := &walk{lab: lab.NewEmpty(hosts), before: surveys{}}
	bare, folder := lab.NewBare(hosts), filepath.Join(GinkgoT().TempDir(), guideVersion)
	DeferCleanup(func(ctx context.Context) { g.remove(ctx) })
	step("guide: release made", func() {
		cmd := exec.CommandContext(ctx, "make", "--no-print-directory", "release", "VERSION="+guideVersion, "RELEASE_DIR="+folder)
		cmd.Dir = checkout
		out, err := cmd.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
	})
	step("guide: empty management cluster", func() {
		Expect(g.lab.Up(ctx, filepath.Join(folder, "manager-image_"+guideVersion+".oci.tar"))).To(Succeed())
	})
	step("guide: bare hosts", func() {
		for number := range guideHosts {
			box, err := bare.HostWithoutPodNetwork(ctx, firstGuideHost+number)
			Expect(err).NotTo(HaveOccurred())
			g.boxes = append(g.boxes, box)
		}
		for _, box := range g.boxes[:packagedHosts] {
			installPackage(ctx, box, filepath.Join(folder, "elemental-agent_"+strings.TrimPrefix(guideVersion, "v")+"_"+runtime.GOARCH+".deb"))
		}
	})
	step("guide: workstation", func() {
		var err error
		g.station, err = g.lab.Workstation(ctx, g.boxes...)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.CopyFS(g.station.ReleaseFolder(guideVersion), os.DirFS(folder))).To(Succeed())
		Expect(bare.Programs(ctx, image.Current, filepath.Join(g.station.Home, "folder"))).To(Succeed())
		Expect(os.WriteFile(filepath.Join(g.station.Home, "network-plugin.yaml"), []byte(podnetwork.Manifests()), 0o600)).To(Succeed())
		g.mirror = serveBundlesOf(ctx, g.station.Home, g.lab.MachineAddress())
	})
	return g
}

// serveBundlesOf serves the bundles of a folder at an address of this machine, until the spec ends.
func serveBundlesOf(ctx context.Context, folder, address string) (url string) {
	GinkgoHelper()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	Expect(err).NotTo(HaveOccurred())
	files := http.FileServer(http.Dir(folder))
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Ext(r.URL.Path) != ".bundle" {
			http.NotFound(w, r)
			return
		}
		files.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(listener) }()
	DeferCleanup(server.Close)
	return "http://" + listener.Addr().String() + "/"
}

// remove removes the hosts and the management cluster. After a failure it collects their logs first,
// because the report is written too late for that.
func (g *walk) remove(ctx context.Context) {
	GinkgoHelper()
	if CurrentSpecReport().Failed() && g.station != nil {
		for _, command := range []string{"kubectl elemental hosts", "clusterctl describe cluster demo --show-conditions all", "kubectl get machines"} {
			out, err := g.station.Run(ctx, command)
			fmt.Println(command, err, "\n"+out.Stdout)
		}
		fmt.Println("Collecting logs:", g.lab.Logs(ctx, filepath.Join(checkout, "out", "e2e", "guide")))
	}
	if keepsLab() {
		return
	}
	for _, box := range g.boxes {
		Expect(box.Remove(ctx)).To(Succeed())
	}
	Expect(g.lab.Remove(ctx)).To(Succeed())
}
