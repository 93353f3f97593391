package docs_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/guide"
)

// entry says what becomes of a block of shell. The block is named by its heading, without the number of a step, and by
// the beginning of its first line.
type entry struct {
	heading, first string
	fate           fate
}

// pagesWithCommands returns the pages whose blocks of shell have an entry each: all but the decisions and the data of
// tests.
func pagesWithCommands(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(pages(t), func(page string) bool { return filepath.Dir(page) == "docs/adr" })
}

// blocksOf returns the blocks of shell of a page.
func blocksOf(t *testing.T, page string) []guide.Block {
	t.Helper()
	blocks, _ := guide.Blocks(read(t, page))
	return blocks
}

// blockOf returns the block that an entry names: that with exactly this first line, or the only one that begins with it.
func blockOf(t *testing.T, page, heading, first string) (guide.Block, error) {
	t.Helper()
	var found []guide.Block
	for _, b := range blocksOf(t, page) {
		switch {
		case b.Heading != heading || !strings.HasPrefix(b.First(), first):
		case b.First() == first:
			return b, nil
		default:
			found = append(found, b)
		}
	}
	if len(found) != 1 {
		return guide.Block{}, fmt.Errorf("%s has %d blocks below the heading %q that begin with %q, and not one", page, len(found), heading, first)
	}
	return found[0], nil
}

// TestCommandsRunOrSayWhyNot checks that each block of shell in the documents is run by a test, or that the table says why
// it is not.
func TestCommandsRunOrSayWhyNot(t *testing.T) {
	all := entries()
	pages := pagesWithCommands(t)
	for page := range all {
		if !slices.Contains(pages, page) {
			t.Errorf("the table has the page %s, which does not exist: remove its entries", page)
		}
	}
	tally := map[string]int{}
	for _, page := range pages {
		named := map[int]int{}
		for _, e := range all[page] {
			block, err := blockOf(t, page, e.heading, e.first)
			if err != nil {
				t.Errorf("an entry of the table is stale: %v", err)
				continue
			}
			named[block.Line]++
			if err := e.fate.check(t, page, block); err != nil {
				t.Errorf("%s:%d, %q: %v", page, block.Line, block.First(), err)
			}
			tally[e.fate.kind()]++
		}
		for _, block := range blocksOf(t, page) {
			switch named[block.Line] {
			case 0:
				t.Errorf("%s:%d: nothing runs the block %q below the heading %q. Have a test of this folder run it as it is (station.run), "+
					"and add an entry of the kind ran to the table of the page; or add an entry that says where it runs otherwise, or why it does not",
					page, block.Line, block.First(), block.Heading)
			case 1:
			default:
				t.Errorf("%s:%d: the block %q has %d entries", page, block.Line, block.First(), named[block.Line])
			}
		}
	}
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(tally)) {
		t.Logf("%3d blocks: %s", tally[kind], kind)
		total += tally[kind]
	}
	t.Logf("%3d blocks", total)
}

// Reasons are about their block: no two blocks have the same, but those that are the same.
func TestReasonsAreSpecific(t *testing.T) {
	g := NewWithT(t)
	seen := map[string]string{}
	for page, list := range entries() {
		for _, e := range list {
			reason, isReason := e.fate.(unrun)
			if !isReason {
				continue
			}
			here := page + ": " + e.first
			g.Expect(reasons()).To(HaveKey(reason.reason), here)
			g.Expect(len(strings.Fields(reason.why))).To(BeNumerically(">=", 6), "%s: %q says too little", here, reason.why)
			g.Expect(reason.why).NotTo(MatchRegexp(`^[A-Z]|\.$`), "%s: the reason is no part of a sentence", here)
			g.Expect(seen[reason.why]).To(BeEmpty(), "%s has the same reason as another block", here)
			seen[reason.why] = here
		}
	}
}

// Commands are in blocks of sh: in other blocks nothing would look for them.
func TestCommandsAreInBlocksOfShell(t *testing.T) {
	command := regexp.MustCompile(`^(?:\$ )?(?:kubectl|clusterctl|make|go|curl|ssh|openssl|age|elemental-agent|bundle|systemctl) [a-z./-]`)
	for _, page := range pagesWithCommands(t) {
		text := read(t, page)
		lines := strings.Split(text, "\n")
		blocks, plain := guide.Blocks(text)
		for _, number := range plain {
			if line := strings.TrimSpace(lines[number-1]); command.MatchString(line) {
				t.Errorf("%s:%d: %q is a command: begin its block with ```sh, or with ```console if its output follows", page, number, line)
			}
		}
		inBlock := map[int]bool{}
		for _, b := range blocks {
			for i := range strings.Split(b.Script, "\n") {
				inBlock[b.Line+i] = true
			}
		}
		for i, line := range lines {
			if strings.HasPrefix(line, "    ") && !inBlock[i+1] && command.MatchString(strings.TrimSpace(line)) {
				t.Errorf("%s:%d: %q is a command: put it between ```sh and ```, not behind spaces", page, i+1, strings.TrimSpace(line))
			}
		}
	}
}
