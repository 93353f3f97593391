//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// maxAgentMemory is the maximum resident memory of an idle agent, in KiB.
const maxAgentMemory = 20 << 10

// expectSmallAgents prints and checks the resident memory of idle agents.
func expectSmallAgents(ctx context.Context) {
	GinkgoHelper()
	for _, host := range hosts.Hosts() {
		out, err := host.Exec(ctx, "sh", "-c",
			`awk '/^VmRSS/ {print $2}' /proc/$(systemctl show --property MainPID --value elemental-agent)/status`)
		Expect(err).NotTo(HaveOccurred())
		resident, err := strconv.Atoi(strings.TrimSpace(out))
		Expect(err).NotTo(HaveOccurred())
		fmt.Printf("  the agent on %s uses %.1f MiB\n", host.Name, float64(resident)/1024)
		Expect(resident).To(BeNumerically("<", maxAgentMemory), "agent on %s", host.Name)
	}
}
