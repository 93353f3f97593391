package command_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/machine"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/command"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

var (
	env    *envtest.Environment
	update = flag.Bool("update", false, "write the golden files anew")
)

// now is the time of all tests: golden files have times.
var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
}

// fixture is a namespace, and a kubeconfig whose context has it.
type fixture struct {
	*controllertest.Fixture

	kubeconfig string
	// input is what commands read from standard input.
	input string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{Fixture: controllertest.New(t, env), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	f.Clock.SetTime(now)
	config := clientcmdapi.NewConfig()
	config.Clusters["management"] = &clientcmdapi.Cluster{Server: env.Config.Host, CertificateAuthorityData: env.Config.CAData}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{ClientCertificateData: env.Config.CertData, ClientKeyData: env.Config.KeyData}
	config.Contexts["lab"] = &clientcmdapi.Context{Cluster: "management", AuthInfo: "admin", Namespace: f.Namespace}
	config.CurrentContext = "lab"
	f.Expect(clientcmd.WriteToFile(*config, f.kubeconfig)).To(Succeed())
	return f
}

// run runs a command, and returns what it writes to standard output.
func (f *fixture) run(args ...string) (string, error) {
	f.T.Helper()
	out := &bytes.Buffer{}
	root := command.New(command.Options{
		IOStreams: genericiooptions.IOStreams{In: strings.NewReader(f.input), Out: out, ErrOut: &bytes.Buffer{}}, Version: "v1.2.3", Clock: f.Clock,
	})
	if args[0] != cobra.ShellCompRequestCmd {
		args = append(args, "--kubeconfig", f.kubeconfig)
	}
	root.SetArgs(args)
	err := root.ExecuteContext(f.Ctx)
	return out.String(), err
}

// reconcile has the manager's reconciler look at a machine.
func (f *fixture) reconcile(m *infrav1.ElementalMachine) {
	f.T.Helper()
	f.reconcileOnce(m)
	f.Refresh(m)
}

// reconcileOnce is reconcile of a machine that may be gone afterwards.
func (f *fixture) reconcileOnce(m *infrav1.ElementalMachine) {
	f.T.Helper()
	r := &machine.Reconciler{Client: f.Client, APIReader: f.Admin, Recorder: f.Recorder, Clock: f.Clock, Nominations: &placement.Nominations{}}
	_, err := r.Reconcile(f.Ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(m)})
	f.Expect(err).NotTo(HaveOccurred())
}

// expectGolden compares text with a file of testdata. The namespace is "sites" there.
func (f *fixture) expectGolden(name, text string) {
	f.T.Helper()
	text = strings.ReplaceAll(text, f.Namespace, "sites")
	file := filepath.Join("testdata", name+".txt")
	if *update {
		f.Expect(os.WriteFile(file, []byte(text), 0o644)).To(Succeed())
	}
	want, err := os.ReadFile(file)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(text).To(Equal(string(want)))
}
