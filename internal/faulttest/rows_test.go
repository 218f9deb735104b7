//go:build unix

package faulttest

import "testing"

// These rows of the matrix are existing tests: of this package, or of the
// package whose inside they need.
func init() {
	addRow("F12", "quota", false, elsewhere(map[string]string{"db": "TestOwnersQuota|TestQuotaHoldsForImports|TestDatabaseQuota|TestTrimOfTheDatabase|TestFloodDelaysOthersByOne", "ipc/server": "TestAnOwnersFloodHarmsHimAlone|TestEveryWriteKeepsToTheRate|TestConnections.*"}, 5))
	addRow("F21", "two daemons", true, several(map[string]func(*testing.T){"second daemon": TestSecondDaemon, "squatted socket": TestSquattedSocket}))
	addRow("F24", "the clock: jumps, 2038", false, elsewhere(map[string]string{"retention": "TestGuard.*|TestOnceGuarded|TestOnceJump.*", "db": "TestNothingGoesByAgeForTenMinutes|TestRecovery.*", "monitor": "TestTimeoutsWhileTheClockJumps"}, 5))
	addRow("F25", "retention racing save, restore, crash", false, elsewhere(map[string]string{"db": "TestModel|TestModelKilled", "retention": "TestPlanEqualsTheOracle|TestWorkerRaces"}, 5))
	addRow("F26", "a file of another version, crash while it is made", false, elsewhere(map[string]string{"db": "TestMigrateFromNothing|TestTheFileKeepsItsFingerprint|TestRefusedFiles|TestKilledWhileItIsMade", "db/sqlite": "TestOlderVersionIsCopiedFirst|TestAFailedMigration.*"}, 5))
	addRow("F28", "hostile JSON and names", true, several(map[string]func(*testing.T){"requests": TestHostileRequests, "canaries": TestRecords}))
}
