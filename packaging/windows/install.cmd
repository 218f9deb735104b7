@echo off
rem Puts ckptsidecar into Program Files and has Windows run it as a service.
rem Run it from where the archive was unpacked, as an administrator:
rem
rem   install.cmd            install, or bring up to date
rem   install.cmd uninstall  take it away; checkpoints and settings stay

setlocal
set "here=%~dp0"
set "there=%ProgramFiles%\ckptsidecar"

if /i "%~1"=="uninstall" goto uninstall
if not "%~1"=="" (
	echo install.cmd: %~1 is not known: say nothing, or uninstall
	exit /b 2
)
if not exist "%here%ckptsidecar.exe" (
	echo install.cmd: ckptsidecar.exe is not beside this file: unpack the whole archive first
	exit /b 1
)

rem A program that runs cannot be replaced.
if exist "%there%\ckptsidecar.exe" "%there%\ckptsidecar.exe" service stop >nul 2>&1
if not exist "%there%" mkdir "%there%" || exit /b 1
copy /y "%here%ckptsidecar.exe" "%there%\ckptsidecar.exe" >nul
if errorlevel 1 (
	echo install.cmd: %there% cannot be written: run this as an administrator
	exit /b 1
)
"%there%\ckptsidecar.exe" service install || exit /b 1
"%there%\ckptsidecar.exe" service status
exit /b

:uninstall
if not exist "%there%\ckptsidecar.exe" (
	echo not installed
	exit /b 0
)
"%there%\ckptsidecar.exe" service uninstall || exit /b 1
rem A process that has just ended may hold its program for a moment.
for /l %%i in (1,1,15) do if exist "%there%\ckptsidecar.exe" (
	del "%there%\ckptsidecar.exe" >nul 2>&1
	if exist "%there%\ckptsidecar.exe" ping -n 2 127.0.0.1 >nul
)
if exist "%there%\ckptsidecar.exe" (
	echo install.cmd: %there%\ckptsidecar.exe is in use: end what runs it, then delete it
	exit /b 1
)
rmdir "%there%" 2>nul
exit /b 0
