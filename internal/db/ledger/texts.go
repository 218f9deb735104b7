package ledger

import "github.com/ckptsidecar/ckptsidecar/internal/db/usage"

// EraseTexts deletes the texts about an agent that are stored beside the audit log, under each of
// its owners. The hashes of the texts stay in the log. The salts of the hashes are deleted too.
func (tx *Tx) EraseTexts(agent *AgentRow) error {
	args := []any{agent.ID, agent.Owner, agent.Name}
	if tx.Tally.Counts() {
		var sizes []struct {
			Owner string `db:"owner"`
			Bytes int64  `db:"bytes"`
		}
		err := tx.List(&sizes, `SELECT p.owner AS owner, sum(`+usage.OfTexts+`) AS bytes`+rowsOfAgent+
			` JOIN act_texts t ON t.n = a.n WHERE a.who IS NULL OR a.who = ?4 GROUP BY p.owner`, append(args, Daemon)...)
		if err != nil {
			return err
		}
		for _, size := range sizes {
			tx.Tally.AddLog(size.Owner, -size.Bytes)
		}
	}
	return tx.Exec(`DELETE FROM act_texts WHERE n IN (SELECT a.n`+rowsOfAgent+` WHERE a.beside IS NOT NULL)`, args...)
}

// rowsOfAgent selects the rows of acts about an agent, under the names of all its owners.
const rowsOfAgent = ` FROM ` + stays +
	` s JOIN places p ON p.owner = s.owner AND p.agent = ?3 JOIN acts a ON a.place = p.id AND a.n > s.after AND a.n <= s.upto`
